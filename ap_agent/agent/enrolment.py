"""Problems of an enrolment: there is none, there is none any more, or its last key is about to expire."""

from __future__ import annotations

from datetime import datetime, timedelta

from ap_agent.common.problem import Problem
from ap_agent.common.settings import Settings
from ap_agent.common.times import time_text
from ap_agent.document.trust import Trust

EXPIRES_SOON = timedelta(days=30)
NOT_ENROLLED = "This host is not enrolled. Run: scionlab-bw-agent enrol URL"
# Codes of `TrustError`, which are also those of the problem.
TRUST_CODES = frozenset(
    {"not_enrolled", "not_signed", "wrong_signature", "unknown_key", "key_expired", "key_revoked", "version_older"}
    | {"links_vanished"}
)


def missing_enrolment(settings: Settings, trust: Trust, *, has_bundle: bool) -> Problem | None:
    """A host that was never enrolled and has nothing to enforce, or one that followed a service once and is told of
    none now: either would go on in silence."""
    if settings.url is not None or (has_bundle and not trust.enrolled):
        return None
    if not trust.enrolled:
        return Problem("not_enrolled", "agent", NOT_ENROLLED)
    return Problem(
        "not_enrolled",
        trust.host_id or "",
        "This host was enrolled, and has no credentials now that can be used: the limits stay, and nobody is asked for "
        "newer ones. Enrol it again (`scionlab-bw-agent enrol URL`); if it shall have no service any longer, delete "
        "trust.json.",
    )


def key_problem(settings: Settings, trust: Trust, now: datetime) -> Problem | None:
    """A warning in good time before no key is left with which the service could say anything to this host."""
    last = max(trust.keyring.keys.values(), key=lambda one: one.not_after, default=None)
    if settings.url is None or last is None or last.not_after - now > EXPIRES_SOON:
        return None
    when = f"The last key of the service that this host trusts, {last.key_id}, "
    if now >= last.not_after:
        text = (
            f"{when}expired at {time_text(last.not_after)}: nothing new is taken. Correct this host's clock if it is "
            "wrong; else enrol this host again."
        )
    else:
        text = (
            f"{when}expires at {time_text(last.not_after)}. The service must make its next key before "
            "(`manage.py signing_key rotate`); then this host follows by itself."
        )
    return Problem("key_expires_soon", settings.url, text)
