"""Problems as named in the log, the health file and the receipt (docs/agent.md has the remedies)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from ap_agent.common.errors import (
    AgentError,
    AuthError,
    BundleError,
    FetchError,
    NotPermittedError,
    StoreError,
    TrustError,
)
from ap_agent.common.log import Logger
from ap_agent.common.problem import Problem
from ap_agent.common.settings import Settings
from ap_agent.common.times import time_text
from ap_agent.document.trust import Trust

EXPIRES_SOON = timedelta(days=30)
NOT_ENROLLED = "This host is not enrolled. Run: scionlab-bw-agent enrol URL"
# Codes of `TrustError`, which are also those of the problem.
TRUST_CODES = frozenset(
    {"not_enrolled", "not_signed", "wrong_signature", "unknown_key", "key_expired", "key_revoked", "version_older"}
    | {"links_vanished", "version_jump"}
)
SKEWED_MS = 5000  # above it timed limits begin and end visibly wrong
# Codes in log, health file and receipt by kind of error. First match counts.
CODES: tuple[tuple[type[AgentError], str], ...] = (
    (AuthError, "auth_refused"),
    (FetchError, "service_unreachable"),
    (BundleError, "bundle_invalid"),
    (StoreError, "state_unusable"),
    (NotPermittedError, "not_permitted"),
    (AgentError, "agent_failed"),
)
# Problems that may resolve themselves are logged as WARNING; all others need an operator.
PASSING_CODES = frozenset(
    {"service_unreachable", "receipt_failed", "no_as", "apply_failed", "verify_failed"}
    | {"usage_failed", "usage_unwritable", "usage_dropped"}  # the limits do not depend on it
    | {"key_expires_soon"}  # only a warning
    | {"clock_skewed", "links_vanished"}  # all limits are in force
    | {"filter_behind"}
)
# Problems of delivery; meanwhile the last good state is enforced.
DELIVERY_CODES = TRUST_CODES | {"auth_refused", "service_unreachable", "bundle_invalid", "state_unusable", "no_as"}


def problem_of(error: AgentError, subject: str) -> Problem:
    if isinstance(error, TrustError):
        return Problem(error.code, subject, error.message)
    code = next(code for kind, code in CODES if isinstance(error, kind))
    return Problem(code, subject, error.message)


def skew_problem(skew_ms: int | None) -> Problem | None:
    """A warning if the clocks differ by more than 5 s."""
    if skew_ms is None or abs(skew_ms) <= SKEWED_MS:
        return None
    direction = "ahead of" if skew_ms > 0 else "behind"
    return Problem(
        "clock_skewed",
        "clock",
        f"This host's clock is {abs(skew_ms) / 1000:.0f} s {direction} the service's; at most {SKEWED_MS // 1000} s "
        "are allowed. Temporary limits begin and end by this host's clock: run an NTP client here (`timedatectl` shows "
        "whether one runs).",
    )


def missing_enrolment(settings: Settings, trust: Trust, *, has_bundle: bool) -> Problem | None:
    """A host that was never enrolled and has nothing to enforce, or one whose enrolment is gone: both would otherwise
    be silent."""
    if settings.url is not None or (has_bundle and not trust.enrolled):
        return None
    if not trust.enrolled:
        return Problem("not_enrolled", "agent", NOT_ENROLLED)
    return Problem(
        "not_enrolled",
        trust.host_id or "",
        "This host was enrolled but has no usable credentials: the limits stay, and no newer ones are fetched. "
        "Enrol it again (`scionlab-bw-agent enrol URL`); if it should no longer use a service, delete trust.json.",
    )


def key_problem(settings: Settings, trust: Trust, now: datetime) -> Problem | None:
    """A warning before the last trusted key expires, after which nothing from the service can be verified."""
    last = max(trust.keyring.keys.values(), key=lambda one: one.not_after, default=None)
    if settings.url is None or last is None or last.not_after - now > EXPIRES_SOON:
        return None
    when = f"The last key of the service that this host trusts, {last.key_id}, "
    if now >= last.not_after:
        text = (
            f"{when}expired at {time_text(last.not_after)}: no new configuration is accepted. Correct the clock "
            "of this host if it is wrong; otherwise enrol this host again."
        )
    else:
        text = (
            f"{when}expires at {time_text(last.not_after)}. The service must create its next key before "
            "(`manage.py signing_key rotate`); this host then follows automatically."
        )
    return Problem("key_expires_soon", settings.url, text)


@contextmanager
def contained(found: dict[str, Problem], logger: Logger, step: str) -> Iterator[None]:
    """A programming error ends this step with its traceback and a problem in `found`; the next step starts again."""
    key = f"internal {step}"
    try:
        yield
        found.pop(key, None)
    except Exception as exc:
        logger.exception("agent.bug", step=step)
        text = f"{type(exc).__name__}: {exc}. This is a bug in the agent; see the log for the traceback."
        if isinstance(exc, MemoryError):
            text = "The agent is out of memory. Free some, or raise the limit of its unit."
        found[key] = Problem("internal_error", f"agent: {step}", text)
