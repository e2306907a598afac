from django.apps import AppConfig


class EnforcementConfig(AppConfig):
    name = "scionlab.enforcement"
    label = "enforcement"
