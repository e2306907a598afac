"""gunicorn's configuration: `gunicorn --config python:scionlab.gunicorn`. Options on the command line win."""

from __future__ import annotations

from scionlab.settings import env

wsgi_app = "scionlab.asgi:application"
worker_class = "scionlab.delivery.polls.worker.Worker"
workers = env.integer("WEB_WORKERS", 2, low=1, high=64)  # as in scionlab.settings.base
backlog = 4096  # after a restart all agents reconnect within seconds
keepalive = 75  # seconds; longer than the 60 of a proxy, which must close first
timeout = 60
graceful_timeout = 20  # longer than GRACE_S of the worker
accesslog = None  # mostly polls; the proxy has an access log
