from django.apps import AppConfig


class ScionConfigConfig(AppConfig):
    name = "scionlab.scion_config"
    label = "scion_config"
