"""An agent and a limiter that are offered documents one by one, and that may be restarted between them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ap_agent.agent.agent import Agent
from ap_agent.agent.fetch import NewBundle
from ap_agent.agent.problems import problem_of
from ap_agent.common.log import get_logger
from ap_agent.common.problem import Problem
from ap_agent.common.settings import Settings
from ap_agent.document.handover import FILE_NAME, write_document
from ap_agent.document.trust import Trust
from ap_agent.limiter.documents import Documents
from tests.agent_bundles import SigningKey, bundle_bytes, entry
from tests.limiter_documents import handed

NOW = datetime(2026, 11, 21, tzinfo=UTC)
THIRD_KEY = SigningKey(3)


class Host(ABC):
    """One of both programs. `folder` has what it trusts, and `installed_file` is what it took last."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.now = settings, NOW
        self.start()

    @abstractmethod
    def start(self) -> None:
        """As after a restart."""

    @abstractmethod
    def use(self, settings: Settings) -> None:
        """The settings are read again."""

    @abstractmethod
    def made(self, version: str, limits: int, kbit: int = 500, **options: Any) -> bytes:
        """A document as the program gets it."""

    @abstractmethod
    def answered(self, data: bytes) -> str:
        """`new`, `unchanged`, or the code of the problem."""

    def offered_bytes(self, data: bytes) -> str:
        """`new`, `unchanged` or `refused`."""
        found = self.answered(data)
        return found if found in {"new", "unchanged"} else "refused"

    def offered(self, version: str, limits: int, kbit: int = 500, **options: Any) -> str:
        return self.offered_bytes(self.made(version, limits, kbit, **options))

    @property
    @abstractmethod
    def trust(self) -> Trust: ...

    @property
    @abstractmethod
    def installed(self) -> str: ...

    @property
    @abstractmethod
    def problems(self) -> Sequence[Problem]: ...

    @property
    @abstractmethod
    def installed_file(self) -> Path: ...

    @property
    def folder(self) -> Path:
        return self.installed_file.parent

    @property
    def trust_file(self) -> Path:
        return self.folder / "trust.json"

    @property
    def codes(self) -> list[str]:
        return [one.code for one in self.problems]

    @property
    def keys(self) -> set[str]:
        return set(self.trust.keyring.keys)


class AgentHost(Host):
    def start(self) -> None:
        self.agent = Agent(self.settings, None, get_logger(), now=lambda: self.now)
        self.agent.configuration.load()

    def use(self, settings: Settings) -> None:
        self.settings = settings
        self.agent.use(settings, None)

    def made(self, version: str, limits: int, kbit: int = 500, **options: Any) -> bytes:
        return bundle_bytes({"1": entry(kbit)}, version=version, limits_version=limits, **options)

    def answered(self, data: bytes) -> str:
        pulled = self.agent.configuration.take_up(NewBundle(data))
        return problem_of(pulled.error, "").code if pulled.error is not None else pulled.contact

    @property
    def trust(self) -> Trust:
        return self.agent.configuration.trust

    @property
    def installed(self) -> str:
        bundle = self.agent.configuration.bundle
        return str(bundle.order) if bundle is not None else "nothing"

    @property
    def problems(self) -> Sequence[Problem]:
        return self.agent.configuration.problems

    @property
    def installed_file(self) -> Path:
        return self.settings.state_dir / "scionlab-bundle"


class LimiterHost(Host):
    def start(self) -> None:
        self.documents = Documents(self.settings, lambda: self.now)
        self.documents.load()
        self.documents.keep()

    def use(self, settings: Settings) -> None:
        self.settings = settings
        self.documents.use(settings)

    def made(self, version: str = "1.18", limits: int = 7, kbit: int = 500, **options: Any) -> bytes:
        return handed({"1": entry(kbit)}, version=version, limits=limits, **options)

    def answered(self, data: bytes) -> str:
        self.settings.state_dir.mkdir(parents=True, exist_ok=True)
        write_document(self.settings.state_dir / FILE_NAME, data)
        is_new = self.documents.take()
        self.documents.keep()
        if "document_refused" in self.codes:
            return "document_refused"
        return "new" if is_new else "unchanged"

    @property
    def trust(self) -> Trust:
        return self.documents.trust

    @property
    def installed(self) -> str:
        return str(self.documents.accepted.order) if self.documents.accepted is not None else "nothing"

    @property
    def problems(self) -> Sequence[Problem]:
        return self.documents.problems

    @property
    def installed_file(self) -> Path:
        return self.settings.limiter_state_dir / FILE_NAME
