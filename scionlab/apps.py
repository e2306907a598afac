"""Django's registration of the one app of this project."""

from django.apps import AppConfig


class ScionlabConfig(AppConfig):
    name = "scionlab"
    verbose_name = "SCIONLab bandwidth service"
    default_auto_field = "django.db.models.BigAutoField"
