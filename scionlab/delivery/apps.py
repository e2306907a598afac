"""What the app adds to those below it."""

from django.apps import AppConfig


class DeliveryConfig(AppConfig):
    name = "scionlab.delivery"
    label = "delivery"

    def ready(self) -> None:
        from scionlab.delivery.models import SigningKey
        from scionlab.platform.secrets_box import keep_encrypted

        keep_encrypted(SigningKey, "private_encrypted")
