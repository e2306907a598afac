"""The site with this app. Its rows are in memory, and its table comes without a migration."""

from scionlab.settings.test import *  # noqa: F403
from scionlab.settings.test import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.note"]
