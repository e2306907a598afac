"""Settings of the stand-in for the stock service: our database, Django's own middleware, its one view."""

from scionlab.settings.dev import *  # noqa: F403  settings are layered by design

ROOT_URLCONF = "lab.bench.peers.stock_service"
MIDDLEWARE = [  # as `startproject` writes it
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
