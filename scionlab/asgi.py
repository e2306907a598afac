"""ASGI application: long polls (scionlab.polls) and Django."""

from __future__ import annotations

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "scionlab.settings.prod")
django.setup(set_prefix=False)

from scionlab.polls.application import Application  # noqa: E402  needs Django's settings

application = Application()
