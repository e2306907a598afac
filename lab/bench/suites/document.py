"""A whole document at the limiter's process: one limit changed among thousands, from the file to the state it writes.

The document is handed over as the agent does it (unsigned here). The limiter reads and checks all of it, keeps its own
copy, applies what differs and writes its state. CPU time is that of all its threads, in the kernel and outside.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Self

from ap_agent.document.handover import document_bytes, write_document
from ap_agent.document.signed_text import Version
from ap_agent.document.state import FILE_NAME
from lab.bench.core import Outcome, Scale, Step
from lab.bench.engines import Entry
from lab.bench.report import Verdict, figure
from lab.bench.world import IFBS, NIC, PREFIX, attachment_point, make_links, tear_down, with_limit
from lab.processes import Processes
from measuring.netns import Lab

NAME = "document"
TITLE = "A whole document"
KBIT = 2_000
HOST_ID = "b0000000000000000000000000000001"
CPU_MS = 150.0
PATIENCE_S = 60.0
CPU, UNTIL = "CPU time", "until the state says so"


def steps(scale: Scale) -> list[Step]:
    sizes, times = scale.pick(((100, 1_000, 4_000), 9), ((400,), 3))
    return [Step(f"{size} links", 3 + size / 150, partial(_measure, size, times)) for size in sizes]


class LimiterProcess:
    """The limiter's program on a host of the lab; its agent is whoever calls `hand`. Context manager."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.host = attachment_point(lab)
        self.programs = Processes(self.host, folder, {"allow_unsigned": True, "log_level": "warning"})
        self._limits_version = 0
        self._seen = 0  # the inode of the state that was read last

    def __enter__(self) -> Self:
        self.programs.__enter__()
        self.programs.path_of("state_dir").mkdir()
        self.programs.start("limiter")
        return self

    def __exit__(self, *_: object) -> None:
        self.programs.__exit__(None, None, None)
        tear_down(self.host, NIC, *IFBS)

    def hand(self, links: Mapping[int, Entry]) -> tuple[float, float]:
        """Seconds until the state tells that these are enforced, and CPU seconds. Raises `LabError`."""
        self._limits_version += 1
        link_info = json.dumps(links).encode()
        data = document_bytes(None, HOST_ID, Version(1, 1, self._limits_version), link_info)
        digest = hashlib.sha256(link_info).hexdigest()
        before_s, began = cpu_s_of(self.pid), time.monotonic()
        write_document(self.programs.path_of("state_dir") / "document.json", data)
        told_s = self.programs.until(lambda: self._tells(digest, len(links)), PATIENCE_S, "the links were not enforced")
        return told_s - began, cpu_s_of(self.pid) - before_s

    def _tells(self, digest: str, count: int) -> bool:
        """Reads the state only where it is another file than before: thousands of links take a while to read."""
        path = self.programs.path_of("limiter_run_dir") / FILE_NAME
        inode = path.stat().st_ino if path.exists() else 0
        if inode == self._seen:
            return False
        self._seen = inode
        state = self.programs.state()
        if state is None or state.limits_digest != digest:
            return False
        return sum(one.state == "enforced" for one in state.links.values()) == count

    @property
    def pid(self) -> int:
        return self.programs.pid("limiter")


def cpu_s_of(pid: int) -> float:
    """Of all threads that live: the first field of their schedstat, ns."""
    total = 0
    for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        total += int(task.read_text(encoding="ascii").split()[0])
    return total / 1e9


def _measure(size: int, times: int, outcome: Outcome) -> None:
    links = make_links(size, kbit=KBIT)
    with (
        tempfile.TemporaryDirectory(prefix="slbw-document-") as folder,
        Lab(PREFIX) as lab,
        LimiterProcess(lab, Path(folder)) as limiter,
    ):
        limiter.hand(links)
        for number in range(1, times + 1):
            seconds, cpu_s = limiter.hand(with_limit(links, (size + 1) // 2, KBIT + number))
            outcome.add(seconds * 1000, "ms", what=UNTIL, size=size)
            outcome.add(cpu_s * 1000, "ms", what=CPU, size=size)


def verdicts(outcome: Outcome) -> Iterator[Verdict]:
    sizes = [int(one) for one in outcome.values("size", what=CPU)]
    if sizes and (cpu_ms := outcome.median(what=CPU, size=max(sizes))) is not None:
        target = f"one limit changed among {max(sizes)}: the whole document costs <= {CPU_MS:g} ms of CPU"
        yield Verdict(target, f"{figure(cpu_ms)} ms", cpu_ms <= CPU_MS)
