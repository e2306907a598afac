from django.apps import AppConfig


class PathsConfig(AppConfig):
    name = "scionlab.paths"
    label = "paths"
