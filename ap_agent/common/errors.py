"""The agent's error family: a class for each kind of cause and consequence.

The loop decides on retries by `retryable` only. Messages are one sentence with the value and the remedy; they never
contain a secret.
"""

from __future__ import annotations


class AgentError(Exception):
    """The agent failed. `retryable`: a retry may succeed without intervention."""

    retryable = False

    def __init__(self, message: str, *, retryable: bool | None = None) -> None:
        super().__init__(message)
        self.message = message
        if retryable is not None:
            self.retryable = retryable


class FetchError(AgentError):
    """The service was unreachable or sent no valid response: keep the last good state, retry later. `retry_after_s` is
    from the Retry-After header, if any."""

    retryable = True

    def __init__(self, message: str, *, retryable: bool | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(message, retryable=retryable)
        self.retry_after_s = retry_after_s


class AuthError(AgentError):
    """The service rejects this host's credentials: the operator must act."""


class BundleError(AgentError):
    """The service sent something that must not be enforced; the last good state is kept. `code` names the broken
    rule."""

    def __init__(self, message: str, *, code: str = "bundle_invalid") -> None:
        super().__init__(message)
        self.code = code


class TrustError(BundleError):
    """A well-formed bundle that is not proven to come from our service, or is a replayed old one. `code` is also the
    problem's code (docs/agent.md)."""


class SettingsError(AgentError):
    """A configuration key is unknown, missing or malformed: the operator must act; `key` names it."""

    def __init__(self, message: str, *, key: str = "") -> None:
        super().__init__(message)
        self.key = key


class StoreError(AgentError):
    """The state directory cannot be read or written (full, read-only, corrupt); its previous content is intact."""

    retryable = True


class LockHeldError(AgentError):
    """Another process of the agent manages this kernel; the message names it, and how to stop it."""


class NotPermittedError(AgentError):
    """This process lacks a right. `code` is the problem's: `not_permitted`, or `no_bpf_right` without CAP_BPF."""

    def __init__(self, message: str, *, code: str = "not_permitted") -> None:
        super().__init__(message)
        self.code = code


class ProgramError(AgentError):
    """The kernel rejects the program or its maps: `program_refused`, `kernel_too_old`."""

    def __init__(self, message: str, *, code: str = "program_refused") -> None:
        super().__init__(message)
        self.code = code
