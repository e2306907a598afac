"""The document that the agent hands to the limiter: one file, taken whole or not at all.

    <state_dir>/document.json, mode 0640, group of the limiter
    {"schema": 1, "signed": text, "signatures": [...], "link_info": text}
    {"schema": 1, "unsigned": {"host_id", "generation", "config_version", "limits_version"}, "link_info": text}

The limiter believes nobody: it verifies signature, host, version and the hash of `link_info` with a keyring of its own.
An unsigned document counts only with `allow_unsigned`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ap_agent.document.signed_text import Version
from bandwidth_config import LinkInfo

FILE_NAME = "document.json"
MAX_BYTES = 24 * 1024 * 1024


@dataclass(frozen=True)
class Configuration:
    """What a document that passed every check says. `total_kbit` caps all limited links of each direction together.

    `limits_digest` is the SHA-256 of link_info.json, in hexadecimal.
    """

    host_id: str
    order: Version
    limits_digest: str
    links: Mapping[int, LinkInfo]
    total_kbit: int | None = None
    is_observe_only: bool = False
