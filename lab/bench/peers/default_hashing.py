"""Settings of the service with Django's own argon2 hasher: 100 MiB in 8 lanes, on the threads that serve pages."""

from scionlab.settings.dev import *  # noqa: F403  settings are layered by design

PASSWORD_HASHERS = ["django.contrib.auth.hashers.Argon2PasswordHasher"]
