from django.apps import AppConfig


class PlatformConfig(AppConfig):
    name = "scionlab.platform"
    label = "platform"
