"""What the log, the health file and the receipt call it when something is wrong (docs/agent.md has the remedies)."""

from __future__ import annotations

from ap_agent.common.errors import (
    AgentError,
    ApplyError,
    AuthError,
    BundleError,
    FetchError,
    ForeignStateError,
    NotPermittedError,
    StoreError,
    TrustError,
    VerifyError,
)
from ap_agent.common.settings import Settings
from ap_agent.document.trust import TRUST_CODES
from ap_agent.model import Problem

# Whose fault, in the codes that log, health file and receipt share. First match counts.
CODES: tuple[tuple[type[AgentError], str], ...] = (
    (AuthError, "auth_refused"),
    (FetchError, "service_unreachable"),
    (BundleError, "bundle_invalid"),
    (StoreError, "state_unusable"),
    (NotPermittedError, "not_permitted"),
    (ForeignStateError, "foreign_state"),
    (ApplyError, "kernel_refused"),
    (VerifyError, "verify_failed"),
    (AgentError, "agent_failed"),
)
# Problems that may pass by themselves; the log says WARNING. All others need somebody.
PASSING_CODES = frozenset(
    {"service_unreachable", "receipt_failed", "no_as", "kernel_refused", "apply_failed", "verify_failed"}
    | {"usage_failed", "usage_unread", "usage_unwritable", "usage_dropped"}  # the limits do not depend on it
    | {"key_expires_soon"}  # nothing is wrong yet
    | {"clock_skewed", "links_vanished"}  # all limits are in force
    | {"foreign_filter_in_front", "whole_datagrams_unavailable"}  # the engine's warnings: all limits are in force
)
# Problems of the way from the service to us; while they last, the last good state is enforced.
DELIVERY_CODES = TRUST_CODES | {"auth_refused", "service_unreachable", "bundle_invalid", "state_unusable", "no_as"}


def problem_of(error: AgentError, subject: str) -> Problem:
    """An error as the log, the health file and the receipt name it."""
    if isinstance(error, TrustError):
        return Problem(error.code, subject, error.message)
    code = next(code for kind, code in CODES if isinstance(error, kind))
    return Problem(code, subject, error.message)


def no_as_problem(settings: Settings) -> Problem:
    return Problem(
        "no_as",
        settings.host_id or "",
        "The service has no AS for this host (204). The limits that are in force stay; to remove them, stop the agent "
        "and run `scionlab-bw-agent reset`.",
    )
