"""The agent's error family: one class for each answer to "whose fault is it, and what happens next".

`retryable` is the only thing that the loop looks at to decide whether to try again soon. Messages are one sentence
with the value and the remedy; they never contain a secret.
"""

from __future__ import annotations


class AgentError(Exception):
    """Something the agent could not do. `retryable`: trying again without anybody's help may succeed."""

    retryable = False

    def __init__(self, message: str, *, retryable: bool | None = None) -> None:
        super().__init__(message)
        self.message = message
        if retryable is not None:
            self.retryable = retryable


class FetchError(AgentError):
    """The service could not be reached or did not answer sensibly: keep the last good state, try again later.

    `retry_after_s` is what the service asked for in its Retry-After header, if it did.
    """

    retryable = True

    def __init__(self, message: str, *, retryable: bool | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(message, retryable=retryable)
        self.retry_after_s = retry_after_s


class AuthError(AgentError):
    """The service refuses this host's credentials: the operator must act."""


class BundleError(AgentError):
    """What the service sent must not be enforced: its bug; the last good state stays. `code` names the rule broken."""

    def __init__(self, message: str, *, code: str = "bundle_invalid") -> None:
        super().__init__(message)
        self.code = code


class TrustError(BundleError):
    """What the service sent may be well made, but nothing says that it comes from our service, or that it is not an old
    one played back. `code` is also the problem's code (docs/agent.md)."""


class SettingsError(AgentError):
    """A configuration key is unknown, missing or malformed: the operator must act; `key` names it."""

    def __init__(self, message: str, *, key: str = "") -> None:
        super().__init__(message)
        self.key = key


class StoreError(AgentError):
    """The state directory cannot be read or written (full, read-only, corrupt); what it held before is intact."""

    retryable = True


class LockHeldError(AgentError):
    """Another process of the agent is at work on this kernel; the message says which, and how to stop it."""


class NotPermittedError(AgentError):
    """This process lacks a right. `code` is the problem's: `not_permitted`, or `no_bpf_right` without CAP_BPF."""

    def __init__(self, message: str, *, code: str = "not_permitted") -> None:
        super().__init__(message)
        self.code = code


class ProgramError(AgentError):
    """The kernel does not take the program or its maps: `program_refused`, `kernel_too_old`."""

    def __init__(self, message: str, *, code: str = "program_refused") -> None:
        super().__init__(message)
        self.code = code
