"""Expiry of keys and certificates in the cockpit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString

from scionlab.scion_config.ends import endings, may_have_endings
from scionlab.testbed.cockpit import Offer, named


class TrustOffer(Offer):
    def asked(self, now: datetime) -> Mapping[str, Any]:
        return {"may_end": may_have_endings(now)}

    def notices(self, there_is: Mapping[str, Any], now: datetime) -> Iterable[SafeString]:
        found = endings(now) if there_is["may_end"] else []
        if found:
            yield format_html(
                "SCION will stop working: {}. The worker renews certificates every hour and failed. Search its log for "
                "<code>trust.</code>.",
                named(found, lambda one: one.text),
            )
