"""For `./dev run` and `./dev demo`: everything embedded, nothing to set."""

from scionlab.settings import env
from scionlab.settings.base import *  # noqa: F403  settings are layered by design

DEBUG = env.boolean("DEBUG", False)
SECRET_KEY = env.text("SECRET_KEY", "for-development-only-on-this-machine-not-for-production-use-ever")
SIGNING_SECRET = env.text("SIGNING_SECRET", SECRET_KEY)
SHOW_MAILS = True
ALLOWED_HOSTS = env.words("ALLOWED_HOSTS", "*")
WHITENOISE_USE_FINDERS = True  # serves static files without collectstatic
