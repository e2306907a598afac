from django.apps import AppConfig


class ImporterConfig(AppConfig):
    name = "scionlab.importer"
    label = "importer"
