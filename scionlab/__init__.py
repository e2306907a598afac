"""The Coordination Service: stores how much bandwidth each Link has, and serves pages, APIs and configurations."""

from scionlab.celery import app as celery_app

__all__ = ["celery_app"]
