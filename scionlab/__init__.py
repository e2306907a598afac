"""The Coordination Service: users and administrators decide here how much bandwidth each Link has."""

from scionlab.celery import app as celery_app

__all__ = ["celery_app"]
