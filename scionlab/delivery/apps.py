from django.apps import AppConfig


class DeliveryConfig(AppConfig):
    name = "scionlab.delivery"
    label = "delivery"
