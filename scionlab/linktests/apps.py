from django.apps import AppConfig


class LinktestsConfig(AppConfig):
    name = "scionlab.linktests"
    label = "linktests"
