"""For tests. `./dev test` and `python -m tests.servers` start PostgreSQL and Redis and set DATABASE_URL and REDIS_URL;
without them what needs both is skipped by name (docs/tests.md), and the rest has SQLite in memory."""

import os

from scionlab.platform import redis_client
from scionlab.settings.base import *  # noqa: F403  settings are layered by design
from scionlab.settings.base import CACHES, REDIS_URL

SECRET_KEY = "for-tests-only-nothing-secret-is-signed-with-this-key"  # noqa: S105  signs nothing that outlives a test
SIGNING_SECRET = SECRET_KEY
ALLOWED_HOSTS = ["*"]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # test users need no slow hash
EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
CELERY_BROKER_URL = "memory://"  # tests run tasks themselves; the worker has its own end-to-end test
CELERY_BROKER_TRANSPORT_OPTIONS = {}
METRICS_DIR = ""  # each process counts for itself
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = True

# Parallel processes of one run (pytest-xdist: gw0, gw1, ...) share the server but not its content; pytest-django gives
# each its own PostgreSQL database.
_process = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
if REDIS_URL and _process:
    REDIS_URL = f"{REDIS_URL}?db={int(_process) + 1}"
    CACHE_URL = REDIS_URL
    for _cache in CACHES.values():
        _cache["LOCATION"] = CACHE_URL
if REDIS_URL:
    # Under load Redis may take more than a second.
    redis_client.TIMEOUT_S = 10.0
    for _cache in CACHES.values():
        _cache["OPTIONS"] |= redis_client.options()
