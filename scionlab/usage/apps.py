from django.apps import AppConfig


class UsageConfig(AppConfig):
    name = "scionlab.usage"
    label = "usage"
