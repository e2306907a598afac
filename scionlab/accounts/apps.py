from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "scionlab.accounts"
    label = "accounts"
