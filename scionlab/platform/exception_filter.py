"""Secrets that exception reports must not contain (ADMINS, or DEBUG on a developer's machine)."""

from __future__ import annotations

import re
from types import FrameType
from typing import Any

from django.http import HttpRequest
from django.views.debug import SafeExceptionReporterFilter


class SecretFilter(SafeExceptionReporterFilter):
    """Also hides addresses of servers, which contain passwords, and local variables with secret names. Django only
    cleanses variables of decorated views, and nothing with DEBUG."""

    hidden_settings = re.compile(
        "API|AUTH|TOKEN|KEY|SECRET|PASS|SIGNATURE|HTTP_COOKIE|DATABASE|REDIS|BROKER|LOCATION|CREDENTIAL", flags=re.I
    )

    def is_active(self, request: HttpRequest | None) -> bool:  # noqa: ARG002  Django's signature
        return True

    def get_traceback_frame_variables(self, request: Any, tb_frame: FrameType) -> Any:
        shown = super().get_traceback_frame_variables(request, tb_frame)
        return [(name, self.cleanse_setting(name, value)) for name, value in shown]
