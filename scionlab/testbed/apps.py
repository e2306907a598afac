from django.apps import AppConfig


class TestbedConfig(AppConfig):
    name = "scionlab.testbed"
    label = "testbed"
