"""For `./dev test`, which starts PostgreSQL and Redis and sets DATABASE_URL and REDIS_URL; embedded without them."""

from scionlab.settings.base import *  # noqa: F403  settings are layered by design

SECRET_KEY = "for-tests-only-nothing-secret-is-signed-with-this-key"  # noqa: S105  signs nothing that outlives a test
ALLOWED_HOSTS = ["*"]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # a test user's password needs no slow hash
EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
CELERY_BROKER_URL = "memory://"  # tests run tasks themselves; the real worker has its own end-to-end test
CELERY_BROKER_TRANSPORT_OPTIONS = {}
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = True
