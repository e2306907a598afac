"""A whole document at the limiter's process: one limit changed among thousands, from the file to the state it writes.

The document is handed over as the agent does it (unsigned here). The limiter reads and checks all of it, keeps its own
copy, applies what differs and writes its state. CPU time is that of all its threads, in the kernel and outside.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from ap_agent.document.handover import document_bytes, write_document
from ap_agent.document.signed_text import Version
from ap_agent.document.state import FILE_NAME, read_state
from lab.bench.core import Outcome, Scale, Step
from lab.bench.engines import CONFINED, entries_of
from lab.bench.limiter_program import HOST_ID, settings_below
from lab.bench.report import Verdict, figure
from lab.bench.world import IFBS, NIC, PREFIX, attachment_point, make_links, tear_down, with_limit
from link_info import LinkInfo
from measuring.iproute import LabError
from measuring.netns import Lab

NAME = "document"
TITLE = "A whole document"
KBIT = 2_000
CPU_MS = 150.0
PATIENCE_S = 60.0
CPU, UNTIL = "CPU time", "until the state says so"


def steps(scale: Scale) -> list[Step]:
    sizes, times = scale.pick(((100, 1_000, 4_000), 9), ((400,), 3))
    return [Step(f"{size} links", 3 + size / 150, partial(_measure, size, times)) for size in sizes]


class LimiterProcess:
    """The limiter's process, and the folder through which it is told."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self._folder, self._limits_version = folder, 0
        self._seen = 0  # the inode of the state that was read last
        for name in ("agent", "maps"):
            (folder / name).mkdir()
        program = f"{sys.executable} -m lab.bench.limiter_program {folder}"
        host = attachment_point(lab)
        self._process = host.popen(["sh", "-c", f"mount -t bpf bpf {folder / 'maps'} && exec {CONFINED} -- {program}"])
        self.host = host

    def hand(self, links: Mapping[int, LinkInfo]) -> tuple[float, float]:
        """Seconds until the state tells that these are enforced, and CPU seconds. Raises `LabError`."""
        self._limits_version += 1
        link_info = json.dumps(entries_of(links)).encode()
        data = document_bytes(None, HOST_ID, Version(1, 1, self._limits_version), link_info)
        digest = hashlib.sha256(link_info).hexdigest()
        before_s, began = self.cpu_s(), time.perf_counter()
        write_document(self._folder / "agent" / "document.json", data)
        while not self._tells(digest, len(links)):
            if self._process.poll() is not None or time.perf_counter() - began > PATIENCE_S:
                said = self.host.lab.stop(self._process), self._process.stderr and self._process.stderr.read()[-800:]
                raise LabError(f"the limiter did not enforce {len(links)} links: {said}")
            time.sleep(0.002)
        return time.perf_counter() - began, self.cpu_s() - before_s

    def _tells(self, digest: str, count: int) -> bool:
        """Reads the state only where it is another file than before: thousands of links take a while to read."""
        run_dir = settings_below(self._folder).limiter_run_dir
        path = run_dir / FILE_NAME
        inode = path.stat().st_ino if path.exists() else 0
        if inode == self._seen:
            return False
        self._seen = inode
        state = read_state(run_dir)
        if state is None or state.limits_digest != digest:
            return False
        return sum(one.state == "enforced" for one in state.links.values()) == count

    @property
    def pid(self) -> int:
        return self._process.pid

    def cpu_s(self) -> float:
        return cpu_s_of(self.pid)


def cpu_s_of(pid: int) -> float:
    """Of all threads that live: the first field of their schedstat, ns."""
    total = 0
    for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        total += int(task.read_text(encoding="ascii").split()[0])
    return total / 1e9


def _measure(size: int, times: int, outcome: Outcome) -> None:
    links = make_links(size, kbit=KBIT)
    with tempfile.TemporaryDirectory(prefix="slbw-document-") as folder, Lab(PREFIX) as lab:
        limiter = LimiterProcess(lab, Path(folder))
        limiter.hand(links)
        for number in range(1, times + 1):
            seconds, cpu_s = limiter.hand(with_limit(links, (size + 1) // 2, KBIT + number))
            outcome.add(seconds * 1000, "ms", what=UNTIL, size=size)
            outcome.add(cpu_s * 1000, "ms", what=CPU, size=size)
        tear_down(limiter.host, NIC, *IFBS)


def verdicts(outcome: Outcome) -> Iterator[Verdict]:
    sizes = [int(one) for one in outcome.values("size", what=CPU)]
    if sizes and (cpu_ms := outcome.median(what=CPU, size=max(sizes))) is not None:
        target = f"one limit changed among {max(sizes)}: the whole document costs <= {CPU_MS:g} ms of CPU"
        yield Verdict(target, f"{figure(cpu_ms)} ms", cpu_ms <= CPU_MS)
