from django.apps import AppConfig


class UserAsesConfig(AppConfig):
    name = "scionlab.user_ases"
    label = "user_ases"
