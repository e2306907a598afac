"""Addresses and versions that tests of the administrators' pages look at."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponseBase
from django.test import Client
from django.urls import reverse

from scionlab.testbed.models import Host

ADD, CHANGE, LIST = "add", "change", "changelist"


def page(model: Any, what: str, *args: object) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{what}", args=args)


def versions(*hosts: Host) -> list[tuple[int, int]]:
    return [Host.objects.values_list("config_version", "limits_version").get(pk=host.pk) for host in hosts]


def confirm_preview(door: Client, saved: Any, *, reason: str = "a test", **options: Any) -> HttpResponseBase:
    """Press the button of the preview that saving a default led to."""
    answer: HttpResponseBase = door.post(f"{saved['Location']}apply/", {"reason": reason}, **options)
    assert answer.status_code == 302, "applied"
    return answer
