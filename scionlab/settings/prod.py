"""For production: secrets have no defaults, and insecure choices must be explicit (docs/operations.md)."""

from scionlab.settings import collect, env
from scionlab.settings.base import *  # noqa: F403  settings are layered by design

DEBUG = False  # whatever the environment says: its error pages show settings and local variables
SECRET_KEY = env.secret("SECRET_KEY")
SIGNING_SECRET = env.secret("SIGNING_SECRET", unlike=SECRET_KEY)
env.text("DATABASE_URL")  # required: `base` falls back to SQLite
REDIS_URL = env.redis_address("REDIS_URL")
ALLOWED_HOSTS = env.host_names("ALLOWED_HOSTS")
SITE_URL = env.web_address("SITE_URL")
env.text("TRUSTED_PROXIES")  # required: with a wrong one a stranger can lock others out, or guess without limit
UNDERLAY_GLOBAL_ONLY = env.boolean("UNDERLAY_GLOBAL_ONLY", True)

SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = True
# Browsers accept cookies of these names only from this host over TLS: other hosts of the domain cannot set them.
SESSION_COOKIE_NAME = "__Host-sessionid"
CSRF_COOKIE_NAME = "__Host-csrftoken"
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
SECURE_SSL_REDIRECT = env.boolean("SECURE_SSL_REDIRECT", True)
# Health checks and Prometheus connect without TLS, bypassing the proxy.
SECURE_REDIRECT_EXEMPT = [r"\A(livez|readyz|metrics)\Z"]
SECURE_HSTS_SECONDS = env.integer("SECURE_HSTS_SECONDS", 31_536_000)
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = env.boolean("SECURE_HSTS_SUBDOMAINS", True)
STORAGES = collect.STORAGES
