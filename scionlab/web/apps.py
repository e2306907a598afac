from django.apps import AppConfig


class WebConfig(AppConfig):
    name = "scionlab.web"
    label = "web"
