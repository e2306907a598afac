"""Writes the manual page of agent.toml from agent.toml.example, so that a key is explained in one place.

python3 packaging/man/agent_toml.py packaging/agent.toml.example > scionlab-bw-agent.toml.5
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

_HEAD = """.\\" made from agent.toml.example
.Dd November 22, 2026
.Dt SCIONLAB-BW-AGENT.TOML 5
.Os
.Sh NAME
.Nm scionlab-bw-agent.toml
.Nd configuration of the bandwidth agent and limiter of a SCIONLab attachment point
.Sh SYNOPSIS
.Pa /etc/scionlab-bw/agent.toml
.Sh DESCRIPTION
"""
_TAIL = """.Sh FILES
.Bl -tag -width Ds
.It Pa /etc/scionlab-bw/agent.toml
This file; root:scionlab-bw, mode 0640.
.It Pa /etc/scionlab-bw/credentials.json
What
.Ic scionlab-bw-agent enrol
wrote.
.El
.Sh SEE ALSO
.Xr scionlab-bw-agent 8 ,
.Xr scionlab-bw-limiter 8 ,
.Pa /usr/share/doc/scionlab-bw-agent/agent.md.gz
"""


def page(example: str) -> str:
    """The page in mdoc(7): each section of the example, and each key with its default under the text above it."""
    return _HEAD + "\n".join(_lines(example)) + "\n" + _TAIL


def _lines(example: str) -> Iterator[str]:
    is_in_list = False
    for block in re.split(r"\n\s*\n", example.strip()):
        section = re.match(r"# --- (.+?) -+$", block.splitlines()[0])
        words = [line.removeprefix("#").strip() for line in block.splitlines() if re.match(r"#( |$)", line)]
        keys = re.findall(r"^#?([a-z_]+ = .*)$", block, flags=re.MULTILINE)
        if section:
            if is_in_list:
                yield ".El"
            is_in_list = False
            yield f".Ss {_text(section[1])}"
            words = words[1:]
        if keys and not is_in_list:
            yield ".Bl -tag -width Ds"
            is_in_list = True
        yield from (f".It Li {_text(key)}" for key in keys)
        if words:
            yield _text(" ".join(words)) if keys or not is_in_list else f".Pp\n{_text(' '.join(words))}"
        if words and not keys and not section:
            yield ".Pp"
    if is_in_list:
        yield ".El"


def _text(words: str) -> str:
    """A dot or an apostrophe at the beginning of a line, and every backslash, mean something to roff."""
    safe = words.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return f"\\&{safe}" if safe[:1] in {".", "'"} else safe


if __name__ == "__main__":
    sys.stdout.write(page(Path(sys.argv[1]).read_text(encoding="utf-8")))
