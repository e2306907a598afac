"""ASGI application: long polls (scionlab.delivery.polls) and Django."""

from __future__ import annotations

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "scionlab.settings.prod")
django.setup(set_prefix=False)

from scionlab.delivery.polls.application import Application  # noqa: E402  needs Django's settings

application = Application()
