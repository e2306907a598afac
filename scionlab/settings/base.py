"""Common settings. Without DATABASE_URL and REDIS_URL everything is embedded: SQLite, cache in the database, and Celery
on the file system in SCIONLAB_VAR, with real workers (docs/architecture.md)."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from csp.constants import NONE, SELF
from django_guid.integrations import CeleryIntegration

from scionlab.platform import log_lines, redis_client
from scionlab.settings import env

BASE_DIR = Path(__file__).resolve().parents[2]
VAR_DIR = Path(env.text("SCIONLAB_VAR", str(BASE_DIR / "var"))).resolve()

DEBUG = False
ALLOWED_HOSTS = env.words("ALLOWED_HOSTS", "127.0.0.1,localhost,[::1]")
CSRF_TRUSTED_ORIGINS = env.words("CSRF_TRUSTED_ORIGINS")
SITE_URL = env.web_address("SITE_URL", "http://127.0.0.1:8000")  # in mails, manifests and command lines

# What the core can do without (docs/architecture.md); each needs those before it only where it says so.
EXTENSIONS = ("scion_config", "usage", "linktests", "paths", "importer")
SCIONLAB_EXTENSIONS = env.some_of("SCIONLAB_EXTENSIONS", EXTENSIONS)

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",  # Swagger UI
    "axes",
    "csp",
    "django_guid",
    "allauth.account",
    "allauth.mfa",
    "scionlab.platform",
    "scionlab.web",
    "scionlab.accounts",
    "scionlab.testbed",
    "scionlab.delivery",
    "scionlab.enforcement",
    "scionlab.limits",
    "scionlab.user_ases",
    *(f"scionlab.{one}" for one in SCIONLAB_EXTENSIONS),
    "scionlab.cockpit",
    "scionlab.site",
]
MIDDLEWARE = [
    "django_guid.middleware.guid_middleware",  # first: log lines of all others have the id
    "scionlab.platform.metrics.requests.MetricsMiddleware",  # it times all others
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "scionlab.platform.middleware.HeadersMiddleware",
    "scionlab.platform.outage.OutageMiddleware",
    "csp.middleware.CSPMiddleware",
    "scionlab.platform.middleware.AdminMethodsMiddleware",
    "scionlab.platform.middleware.AuditMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "scionlab.accounts.pages.second_factor.RequiredMiddleware",
    "scionlab.platform.middleware.OnlySentMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "axes.middleware.AxesMiddleware",  # last: it replaces the response to a login
]
ROOT_URLCONF = "scionlab.urls"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "scionlab.accounts.pages.mails.shows_mails",
            ]
        },
    }
]

DATABASE_POOL = env.integer("DATABASE_POOL", 0, high=64)  # shared by the threads of a process; 0: no pool
DATABASES = {"default": env.database("DATABASE_URL", str(VAR_DIR / "scionlab.sqlite3"), pool=DATABASE_POOL)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

REDIS_URL = env.redis_address("REDIS_URL", "")
# A separate Redis may evict least recently used entries; that of REDIS_URL has messages, and must not.
CACHE_URL = env.redis_address("CACHE_URL", REDIS_URL)
if REDIS_URL:
    CACHES: dict[str, dict[str, Any]] = {
        "default": {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "LOCATION": CACHE_URL,
            "OPTIONS": {**redis_client.options(), "serializer": "scionlab.platform.signed_cache.SignedSerializer"},
        }
    }
    CACHES["live"] = {**CACHES["default"], "KEY_PREFIX": "live"}
    CELERY_BROKER_URL = REDIS_URL
    # A hanging Redis must not delay a save; work that is not queued is swept (platform.queue).
    CELERY_BROKER_TRANSPORT_OPTIONS: dict[str, object] = {"socket_timeout": 1.0, "socket_connect_timeout": 1.0}
    if CELERY_BROKER_URL.startswith("unix://"):
        CELERY_BROKER_URL = CELERY_BROKER_URL.replace("unix://", "redis+socket://", 1)
else:
    CACHES = {"default": {"BACKEND": "django.core.cache.backends.db.DatabaseCache", "LOCATION": "scionlab_cache"}}
    # Live rates (scionlab.usage.live) are never in the database.
    CACHES["live"] = {
        "BACKEND": "django.core.cache.backends.filebased.FileBasedCache",
        "LOCATION": str(VAR_DIR / "live"),
        "OPTIONS": {"MAX_ENTRIES": 10_000},
    }
    CELERY_BROKER_URL = "filesystem://localhost"  # the host is not used; without one kombu warns
    _queue = str(VAR_DIR / "queue")
    CELERY_BROKER_TRANSPORT_OPTIONS = {
        "data_folder_in": _queue,
        "data_folder_out": _queue,  # the same folder: one process reads what another sends
        "control_folder": str(VAR_DIR / "queue-control"),
        "polling_interval": 0.2,  # seconds; the default of 1 would be most of the time from Save to kernel
    }
# Each process of the web tier (scionlab.delivery.polls; their number is WEB_WORKERS, scionlab.gunicorn)
WEB_THREADS = env.integer("WEB_THREADS", 8, low=1, high=64)  # for pages and the REST API
POLL_THREADS = env.integer("POLL_THREADS", 4, low=1, high=64)  # for tarballs
# Size of the site, to compute its number of connections (delivery.polls.connections)
WEB_WORKERS = env.integer("WEB_WORKERS", 2, low=1, high=64)
WEB_REPLICAS = env.integer("WEB_REPLICAS", 1, low=1, high=100)  # web tiers
TASK_PROCESSES = env.integer("TASK_PROCESSES", 2, low=1, high=1000)  # of all workers together
POLL_PLACES = env.integer("POLL_PLACES", 10_000)  # polls that may wait at the same time

CELERY_TASK_IGNORE_RESULT = True  # results live in the database; nobody waits for a task
CELERY_TASK_DEFAULT_QUEUE = "scionlab"
CELERY_TASK_TIME_LIMIT = 120
CELERY_TASK_ACKS_LATE = False  # the sweep repeats what a dead worker had begun
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None  # a worker waits for its broker as long as it takes
CELERY_TIMEZONE = "UTC"
CELERY_BEAT_SCHEDULE_FILENAME = str(VAR_DIR / "celerybeat-schedule")
CELERY_BEAT_SCHEDULER = "scionlab.platform.beat:Scheduler"
CELERY_BEAT_MAX_LOOP_INTERVAL = 30  # seconds; the health check of docker-compose.yml allows 2 minutes
BEAT_HEARTBEAT = env.text("BEAT_HEARTBEAT", str(VAR_DIR / "beat-heartbeat"))  # a separate file for each beat
SWEEP_INTERVAL_S = env.integer("SWEEP_INTERVAL_S", 30, low=1)
# Each task finds its work in the database, so a missed run is made up for by the next: one that has not started when
# the next is due expires.
_EVERY_S = {
    **dict.fromkeys(("flush_seen", "flush_tokens_used"), 60),
    **dict.fromkeys(("find_notices", "notify_exceptions"), 60),
    "forget_old_rows": 3600,
    "forget_sessions": 86_400,
    "retire_timed_limits": 3600,
    "rotate_signing_keys": 3600,
    "sweep": SWEEP_INTERVAL_S,
}
_EVERY_S_OF = {
    "scion_config": {"renew_keys": 3600},
    "usage": {"roll_up_usage": 300, "prune_usage": 3600, "compute_usage_months": 3600},
    "linktests": {"notify_tests": 60, "retire_link_tests": 3600},
}
for _extension in SCIONLAB_EXTENSIONS:
    _EVERY_S |= _EVERY_S_OF.get(_extension, {})
CELERY_BEAT_SCHEDULE = {
    name: {"task": f"scionlab.tasks.{name}", "schedule": float(every_s), "options": {"expires": every_s}}
    for name, every_s in _EVERY_S.items()
}

AUTH_USER_MODEL = "accounts.User"
AUTHENTICATION_BACKENDS = ["axes.backends.AxesStandaloneBackend", "django.contrib.auth.backends.ModelBackend"]
PASSWORD_HASHERS = [
    "scionlab.platform.passwords.hashers.Argon2Hasher",
    "scionlab.platform.passwords.hashers.Pbkdf2Hasher",  # verified, and replaced at the next login
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
PASSWORD_RESET_TIMEOUT = 24 * 3600  # like the other links in mails (accounts.account)
REGISTRATION_OPEN = env.boolean("REGISTRATION_OPEN", True)
REGISTRATION_DOMAINS = [word.lower() for word in env.words("REGISTRATION_DOMAINS")]  # of email addresses; none: all
ACCOUNT_REQUESTS_PER_ADDRESS = env.integer("ACCOUNT_REQUESTS_PER_ADDRESS", 20, low=1)  # per hour, for mails with links

# allauth: the steps of a login, and the second factor (docs/adr/0022).
ACCOUNT_ADAPTER = "scionlab.accounts.pages.second_factor.AccountAdapter"
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*", "password2*"]  # allauth checks it; the forms are ours
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_EMAIL_VERIFICATION = "none"  # confirming creates the account (accounts.account)
ACCOUNT_PASSWORD_RESET_TOKEN_GENERATOR = "django.contrib.auth.tokens.PasswordResetTokenGenerator"  # noqa: S105  a class
ACCOUNT_RATE_LIMITS = MFA_RATE_LIMITS = False  # axes counts
ACCOUNT_FORMS = {"reauthenticate": "scionlab.accounts.pages.second_factor.OwnPasswordForm"}
MFA_ADAPTER = "scionlab.accounts.pages.second_factor.SecondFactorAdapter"
MFA_FORMS = {
    "authenticate": "scionlab.accounts.pages.second_factor.CodeForm",
    "reauthenticate": "scionlab.accounts.pages.second_factor.OwnCodeForm",
    "activate_totp": "scionlab.accounts.pages.second_factor.AppForm",
}
MFA_SUPPORTED_TYPES = ["totp", "recovery_codes", "webauthn"]
MFA_TOTP_ISSUER = "SCIONLab Bandwidth Service"
MFA_TOTP_TOLERANCE = 1  # tolerance of clocks, in steps of 30 s
REQUIRE_SECOND_FACTOR_OF_STAFF = env.boolean("REQUIRE_SECOND_FACTOR_OF_STAFF", False)

LOGIN_URL = "login"
CSRF_FAILURE_VIEW = "scionlab.web.pages.own_pages.csrf_failure"
LOGIN_REDIRECT_URL = "user_as_list"
LOGOUT_REDIRECT_URL = "login"

# Number of our proxies; requests are counted by the address that the outermost saw (scionlab.platform.client_address).
TRUSTED_PROXIES = env.integer("TRUSTED_PROXIES", 0, high=10)
# Failed log-ins (scionlab.platform.login_guard)
AXES_HANDLER = "scionlab.platform.login_guard.LoginGuard"
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"], "ip_address"]  # the order that LoginGuard expects
AXES_FAILURE_LIMIT = env.integer("LOGIN_FAILURES", 5, low=1)
LOGIN_FAILURES_PER_ADDRESS = env.integer("LOGIN_FAILURES_PER_ADDRESS", 50, low=1)
AXES_COOLOFF_TIME = timedelta(seconds=env.integer("LOGIN_LOCK_S", 900, low=1))
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False  # the page shows this time
AXES_RESET_ON_SUCCESS = True
AXES_CLIENT_IP_CALLABLE = "scionlab.platform.client_address.client_network"
AXES_USERNAME_CALLABLE = "scionlab.platform.login_guard.username_of"
AXES_LOCKOUT_CALLABLE = "scionlab.platform.login_guard.locked_out"
# Never stored or logged, nor passwords.
AXES_SENSITIVE_PARAMETERS = ["username", "ip_address", "csrfmiddlewaretoken", "code"]
AXES_DISABLE_ACCESS_LOG = True  # logins are not recorded
AXES_ENABLE_ADMIN = False  # `manage.py axes_reset_username`, `axes_reset_ip` (docs/operations.md)
AXES_VERBOSE = False

SESSION_COOKIE_AGE = env.integer("SESSION_AGE_S", 12 * 3600, low=60)
SESSION_COOKIE_HTTPONLY = CSRF_COOKIE_HTTPONLY = True  # no script of ours reads either
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"  # Strict would log out users who follow a link of a mail

SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF],
        "connect-src": [SELF],  # pages that refresh themselves, the administrators' search fields
        "form-action": [SELF],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
    }
}
DEFAULT_EXCEPTION_REPORTER_FILTER = "scionlab.platform.exception_filter.SecretFilter"

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "scionlab.accounts.token_auth.ApiTokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_SCHEMA_CLASS": "scionlab.web.rest.schema.ApiAutoSchema",
    "DEFAULT_PAGINATION_CLASS": "scionlab.web.rest.pagination.Pages",
    "EXCEPTION_HANDLER": "scionlab.platform.api_errors.exception_handler",
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],  # no second site for browsers
    "DEFAULT_PARSER_CLASSES": ["scionlab.web.rest.parsers.JSONParser"],
    "URL_FORMAT_OVERRIDE": None,  # ?format= is an operation's own parameter, or unknown
    "DEFAULT_THROTTLE_CLASSES": [
        "scionlab.platform.throttles.AddressThrottle",
        "scionlab.platform.throttles.PersonThrottle",
    ],
    "DEFAULT_THROTTLE_RATES": {
        "anon": env.rate("API_THROTTLE_ANON", "60/min"),
        "user": env.rate("API_THROTTLE_USER", "600/min"),
        "token": env.rate("API_THROTTLE_TOKEN", "10/min"),
        "enrol": env.rate("API_THROTTLE_ENROL", "10/min"),
    },
}
SPECTACULAR_SETTINGS = {
    "OAS_VERSION": "3.1.0",
    "POSTPROCESSING_HOOKS": ["scionlab.site.api_schema.complete"],
    "COMPONENT_SPLIT_PATCH": False,
    "PATH_CONVERTER_OVERRIDES": {"key": {"type": "integer", "minimum": 1, "maximum": 2**59}},
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "TITLE": "SCIONLab Bandwidth Service",
    "DESCRIPTION": "Your ASes, their Links and what the attachment points enforce.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
}

EMAIL_HOST = env.text("EMAIL_HOST", "")
EMAIL_PORT = env.integer("EMAIL_PORT", 25, low=1, high=65_535)
EMAIL_HOST_USER = env.text("EMAIL_USER", "")
EMAIL_HOST_PASSWORD = env.text("EMAIL_PASSWORD", "")
_email_tls = env.one_of("EMAIL_TLS", "none", "none", "starttls", "tls")
EMAIL_USE_TLS, EMAIL_USE_SSL = _email_tls == "starttls", _email_tls == "tls"
EMAIL_BACKEND = (
    "django.core.mail.backends.smtp.EmailBackend" if EMAIL_HOST else "django.core.mail.backends.filebased.EmailBackend"
)
EMAIL_FILE_PATH = str(VAR_DIR / "mail")  # without EMAIL_HOST mails are written here
SHOW_MAILS = False  # public: only for development (scionlab.accounts.pages.mails)
EMAIL_TIMEOUT = 20
DEFAULT_FROM_EMAIL = env.text("DEFAULT_FROM_EMAIL", "SCIONLab <noreply@localhost>")

UNDERLAY_GLOBAL_ONLY = env.boolean("UNDERLAY_GLOBAL_ONLY", False)  # True in production (DOMAIN section 9)

# SIGNING_SECRET encrypts private parts of signing keys; dev, test and prod each set it.
SIGNING_SECRET_FALLBACKS = env.words("SIGNING_SECRET_FALLBACKS")  # previous ones, which still decrypt
SIGNING_KEY_DAYS = env.integer("SIGNING_KEY_DAYS", 730, low=1, high=3650)
SIGNING_KEY_ROTATE_DAYS = env.integer("SIGNING_KEY_ROTATE_DAYS", 180, high=3650)  # before the last one's end; 0: never
SECRET_GRACE_HOURS = env.integer("SECRET_GRACE_HOURS", 24, low=1, high=24 * 365)  # a host's previous secret

# Traffic is kept in steps of 10 s, 5 minutes (at least 36 days, for a month's percentiles), and days (permanently)
# (docs/adr/0015).
USAGE_KEEP_10S_DAYS = env.integer("USAGE_KEEP_10S_DAYS", 2, low=1, high=90)
USAGE_KEEP_5MIN_DAYS = env.integer("USAGE_KEEP_5MIN_DAYS", 90, low=36, high=3660)

# Retention of rows (scionlab.site.retention): mails after sending; enrolment tokens and API tokens after their
# end.
MAIL_KEEP_DAYS = env.integer("MAIL_KEEP_DAYS", 90, low=1, high=3660)
USED_KEEP_DAYS = env.integer("USED_KEEP_DAYS", 30, low=1, high=3660)

SECURITY_CONTACT = env.contacts("SECURITY_CONTACT")  # in /.well-known/security.txt; empty: no such file

# Access to /metrics: closed unless one of these is set.
METRICS_TOKEN = env.optional_secret("METRICS_TOKEN")
METRICS_NETWORKS = env.networks("METRICS_NETWORKS")
METRICS_DIR = str(VAR_DIR / "metrics")  # where the processes of a machine count together

LANGUAGE_CODE = "en-gb"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False
STATIC_URL = "static/"
STATIC_ROOT = env.text("STATIC_ROOT", str(VAR_DIR / "static"))

LOG_LEVEL = env.one_of("LOG_LEVEL", "INFO", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"class": "scionlab.platform.log_lines.Line", "format": log_lines.FORMAT}},
    "handlers": {"stdout": {"class": "logging.StreamHandler", "stream": "ext://sys.stdout", "formatter": "line"}},
    "root": {"handlers": ["stdout"], "level": LOG_LEVEL},
    "loggers": {
        "axes": {"level": "ERROR"},  # LoginGuard logs the same without accounts
        "django_guid": {"level": "ERROR"},  # it logs the id of every request and task
    },
}
# One id for everything that a request causes: in nginx's log, the lines of the web tier, and those of queued tasks.
# nginx creates it and returns it to the client; periodic tasks have their own.
DJANGO_GUID = {
    "GUID_HEADER_NAME": "X-Request-ID",
    "RETURN_HEADER": False,
    "EXPOSE_HEADER": False,
    "INTEGRATIONS": [CeleryIntegration()],
}

VAR_DIR.mkdir(parents=True, exist_ok=True)
for _folder in ("queue", "queue-control", "mail", "static", "metrics"):
    (VAR_DIR / _folder).mkdir(exist_ok=True)
