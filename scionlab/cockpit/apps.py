from django.apps import AppConfig


class CockpitConfig(AppConfig):
    name = "scionlab.cockpit"
    label = "cockpit"
