"""Links that a command works on, and where they come from, in words."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ap_agent.common.errors import AgentError
from ap_agent.common.files import read_plain
from ap_agent.document.handover import Configuration
from ap_agent.document.signed_text import Version
from ap_agent.limiter.documents import Documents
from bandwidth_config import LinkInfoError, parse_link_info

STOCK_LINK_INFO = Path("/etc/scion/link_info.json")  # where the stock client installs it
_MAX_LINK_INFO_BYTES = 16 * 1024 * 1024


class InputError(AgentError):
    """A file that was named on the command line cannot be used; nothing was changed."""


@dataclass(frozen=True)
class Source:
    """What is to be enforced. Of a file: no host, no version, and no `documents`, which keep what was handed over."""

    configuration: Configuration
    words: str
    documents: Documents | None = None


def source_of_file(path: Path) -> Source:
    """Raises `InputError` with the file's name and the rule that it breaks."""
    try:
        data, _ = read_plain(path, _MAX_LINK_INFO_BYTES)
        links = parse_link_info(data, max_bytes=_MAX_LINK_INFO_BYTES)
    except OSError as exc:
        raise InputError(f"{path} cannot be read: {exc.strerror}. Nothing was changed.") from exc
    except LinkInfoError as exc:
        raise InputError(f"{path} cannot be used: {exc.message} Nothing was changed.") from exc
    return Source(Configuration("", Version(0, 0, None), "", links), f"file {path}")


def source_of(documents: Documents) -> Source | None:
    """None where no document was ever accepted."""
    if documents.accepted is None:
        return None
    configuration = documents.accepted.configuration
    generation, config_version, limits_version = configuration.order
    limits = f", limits {limits_version}" if limits_version is not None else ""
    return Source(configuration, f"configuration {generation}.{config_version}{limits}", documents)
