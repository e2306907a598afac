from django.apps import AppConfig


class LimitsConfig(AppConfig):
    name = "scionlab.limits"
    label = "limits"
