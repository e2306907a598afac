"""Files that are downloaded over several limited links at once, from nginx or Python's web server, by `mpget` or by
what it is compared with.

    run([Task("4.10", MPGET, (4000, 800), 10), Task("4.10", ROUND_ROBIN, (4000, 800), 10)], outcome)

Each task has wires of its own, behind our limiter; all tasks of a run load at once. Files lie in memory. A rate is the
file's bytes over the time from the first connection attempt to the last byte, by the downloader's own clock: what a
program needs to start is not in it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from lab.bench.core import Label, Outcome
from lab.evaluation.bed import Bed, BedLab, Wire
from lab.evaluation.bonding import has_mptcp, joined_by_mptcp, sprayed
from lab.evaluation.core import TO_USER, labels_of
from lab.evaluation.download import Fetching, web_server
from lab.evaluation.limiters import OURS
from lab.running import output_of
from measuring.framing import tcp_goodput_bound
from measuring.iproute import LabError
from measuring.netns import Namespace

MPGET, ROUND_ROBIN, ALONE, MPTCP, SPRAYING = (
    "mpget", "round robin", "a plain download on each path alone", "MPTCP", "packets sprayed by weight",
)  # fmt: skip
MODULES = {MPGET: "multipath", ROUND_ROBIN: "lab.evaluation.round_robin"}
NGINX_PORT, PYTHON_PORT = 8080, 8100
BEFORE_EQUALS = ("nice", "-n", "-40")  # to -20 from any: what `go_before_equals` does in a program of ours
LONGEST = 6  # times what a task needs at what headers leave; a peer that needs longer is judged by what it has then
_FOLDER = "/dev/shm"  # noqa: S108  what waits for a disk says nothing about links
_LISTENS_WITHIN_S = 10.0
_APART_S = 0.1  # or a handshake would be the wait of a program that starts for the processor


@dataclass(frozen=True)
class Task:
    """`files` at once over the same links of so many kbit/s; `seconds` are what they take together at what headers
    leave of the limits. With `leaf_bytes` a token bucket with a queue of so many bytes limits instead of ours."""

    row: str
    who: str
    limits_kbit: tuple[int, ...]
    seconds: float
    column: int = 0
    files: int = 1
    leaf_bytes: int = 0

    @property
    def size_bytes(self) -> int:
        """Of each file."""
        return int(bound_kb(self.limits_kbit) * 1000 * self.seconds / self.files)

    @property
    def sizes(self) -> list[int]:
        """Of all files that are there to be fetched."""
        if self.who == ALONE:
            return [int(bound_kb([kbit]) * 1000 * self.seconds) for kbit in self.limits_kbit]
        return [self.size_bytes]

    @property
    def labels(self) -> dict[str, Label]:
        """Of its series."""
        varied = {"files": self.files, "leaf": self.leaf_bytes, "seconds": round(self.seconds)}
        paths = len(self.limits_kbit)
        return {**labels(self.row, self.who), "column": self.column, "paths": paths, **varied}


@dataclass(frozen=True)
class Result:
    """`of_paths` has the bytes that each path brought, `waste` what came twice as a share of the file."""

    rate_kb: float
    of_paths: Sequence[int] = ()
    waste: float = 0.0


Finish = Callable[[], Result]


def labels(row: str, who: str) -> dict[str, Label]:
    """What every series of the suite has."""
    return labels_of(row, OURS, TO_USER, who=who)


def bound_kb(limits_kbit: Iterable[int]) -> float:
    """What headers leave of the sum, kB/s (1000 bytes)."""
    return tcp_goodput_bound(sum(limits_kbit)) / 8


def run(tasks: Sequence[Task], outcome: Outcome) -> None:
    """All of them at once; adds the rate of each, and of two paths the ratio of their shares. Raises `LabError`, also
    where the files have no room in memory. Without MPTCP in the kernel its tasks are left out, and that is noted."""
    if not has_mptcp() and any(task.who == MPTCP for task in tasks):
        outcome.note("MPTCP was not measured: this kernel has none.")
        tasks = [task for task in tasks if task.who != MPTCP]
    needed, free = sum(task.size_bytes * task.files for task in tasks), shutil.disk_usage(_FOLDER).free
    if needed > free:
        raise LabError(f"{_FOLDER} has {free:,} bytes free and this needs {needed:,}. Give it more room.")
    with BedLab() as lab:
        places = _places(lab, tasks)
        shared = next(bed for bed, _, task in places if task.who != MPTCP)
        with nginx(shared.ap, {size for task in tasks for size in task.sizes}) as folder:
            for place in places:
                _set_up(*place)
            started = []
            for bed, wires, task in places:
                started.append(_start(task, bed, wires, folder))
                time.sleep(_APART_S)
            results = [finish() for finish in started]
    for task, found in zip(tasks, results, strict=True):
        outcome.add(found.rate_kb, "kB/s", **task.labels, what="rate")
        if len(found.of_paths) == 2:
            outcome.add(found.of_paths[0] / max(1, found.of_paths[1]), "ratio", **task.labels, what="ratio")
        if found.of_paths:
            outcome.add(found.waste * 100, "%", **task.labels, what="waste")


Place = tuple[Bed, Sequence[Wire], Task]


def _places(lab: BedLab, tasks: Sequence[Task]) -> list[Place]:
    """Wires of one bed for all but MPTCP, whose subflows leave from every address of a host: beds of its own."""
    shared = Bed(lab, OURS, sum(len(task.limits_kbit) for task in tasks if task.who != MPTCP) or 1)
    left = iter(shared.wires())
    found: list[Place] = []
    for task in tasks:
        bed = shared if task.who != MPTCP else Bed(lab, OURS, len(task.limits_kbit))
        wires = bed.wires() if bed is not shared else [next(left) for _ in task.limits_kbit]
        found.append((bed, wires, task))
    for bed in {id(bed): bed for bed, _, _ in found}.values():
        limits = {
            wire.number: kbit
            for its, wires, task in found
            if its is bed and not task.leaf_bytes
            for wire, kbit in zip(wires, task.limits_kbit, strict=True)
        }
        bed.limit(limits, four_keys=True)
        send_by_cubic(bed)
    return found


def _set_up(bed: Bed, wires: Sequence[Wire], task: Task) -> None:
    if task.leaf_bytes:
        for wire, kbit in zip(wires, task.limits_kbit, strict=True):
            token_bucket(bed, wire, kbit, task.leaf_bytes)
    elif task.who == MPTCP:
        joined_by_mptcp(bed, wires)
    elif task.who == SPRAYING:
        sprayed(bed, wires, task.limits_kbit)


def send_by_cubic(bed: Bed) -> None:
    """What nginx sends: it has no option for it, and a host's default may not be changed from within a namespace."""
    bed.ap.ip_batch(
        f"route change {wire.ends[0][0].rpartition('.')[0]}.0/24 dev {wire.dev} proto kernel scope link "
        f"src {wire.ends[0][0]} congctl cubic"
        for wire in bed.wires()
    )


def token_bucket(bed: Bed, wire: Wire, kbit: int, queue_bytes: int) -> None:
    """Limits the attachment point's end of a wire, as the kernel's tbf does. Raises `LabError`."""
    limit = ["rate", f"{kbit}kbit", "burst", "3028", "limit", str(queue_bytes)]
    bed.ap.run("tc", "qdisc", "add", "dev", wire.dev, "root", "tbf", *limit)


# --- the server ---------------------------------------------------------------------------------------------------


@contextmanager
def nginx(host: Namespace, sizes: Iterable[int]) -> Iterator[Path]:
    """Running on a host of the lab with a file of each size, named by it; yields a folder for what is fetched. Raises
    `LabError`."""
    with tempfile.TemporaryDirectory(dir=_FOLDER) as name:
        folder = Path(name)
        root = folder / "root"
        root.mkdir()
        for size in sizes:
            with (root / str(size)).open("wb") as file:
                file.truncate(size)
        config = folder / "nginx.conf"
        config.write_text(
            f"daemon off; user root; pid {folder}/pid; error_log {folder}/errors; worker_processes 1; events {{}}"
            f"http {{ access_log off; sendfile on; tcp_nopush on; server {{ listen {NGINX_PORT}; root {root}; }} }}"
        )
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = host.popen([*BEFORE_EQUALS, "nginx", "-p", name, "-c", str(config)], **quiet)
        until = time.monotonic() + _LISTENS_WITHIN_S
        while f":{NGINX_PORT} " not in host.run("ss", "-ltn"):
            if time.monotonic() > until or process.poll() is not None:
                raise LabError(f"nginx did not start: {(folder / 'errors').read_text()[-300:]}")
            time.sleep(0.05)
        yield folder
        host.lab.stop(process)


# --- downloaders --------------------------------------------------------------------------------------------------


def _start(task: Task, bed: Bed, wires: Sequence[Wire], folder: Path) -> Finish:
    if task.who in MODULES:
        paths = [path_of(wire.ends[1][0], wire.ends[0][0], task.size_bytes) for wire in wires]
        files = [Fetch(bed.users, folder, paths, module=MODULES[task.who]) for _ in range(task.files)]
        return partial(_finish_all, task, files)
    is_mptcp = task.who == MPTCP
    if task.who == ALONE:
        urls = [f"http://{wire.ends[0][0]}:{NGINX_PORT}/{size}" for wire, size in zip(wires, task.sizes, strict=True)]
    else:
        port = PYTHON_PORT + wires[0].number
        urls = [web_server(bed.ap, wires[0].ends[0][0], port, task.size_bytes, is_mptcp=is_mptcp)]
    loading = Fetching(bed.users, [(url, 1) for url in urls], seconds=task.seconds * LONGEST, is_mptcp=is_mptcp)
    return partial(_finish_loading, loading)


def path_of(user: str, server: str, size_bytes: int) -> str:
    """As `mpget` is given it: from the user's address to the attachment point's."""
    return f"{user}>http://{server}:{NGINX_PORT}/{size_bytes}"


class Fetch:
    """A running `mpget`."""

    def __init__(self, host: Namespace, folder: Path, paths: Sequence[str], *, module: str = MODULES[MPGET]) -> None:
        self._file = folder / f"fetched-{next(_NUMBERS)}"
        given = [word for path in paths for word in ("--path", path)]
        command = [*BEFORE_EQUALS, sys.executable, "-m", module, "-o", str(self._file), "--json", *given]
        self._process = host.popen(command)

    def finish(self, within_s: float) -> dict[str, Any]:
        """What `--json` prints. Raises `LabError` where the file did not come in that time."""
        found: dict[str, Any] = json.loads(output_of(self._process, "mpget", within_s))
        if self._file.stat().st_size != found["size_bytes"]:
            raise LabError(f"mpget's file has {self._file.stat().st_size} bytes of {found['size_bytes']}")
        self._file.unlink()
        return found


_NUMBERS = count()


def _finish_all(task: Task, fetches: Sequence[Fetch]) -> Result:
    found = [one.finish(task.seconds * LONGEST + 20) for one in fetches]
    seconds = max(one["seconds"] for one in found)
    of_paths = [[path["received_bytes"] for path in one["paths"]] for one in found]
    waste = sum(one["waste_bytes"] for one in found) / sum(one["size_bytes"] for one in found)
    return Result(
        sum(one["size_bytes"] for one in found) / seconds / 1000, list(map(sum, zip(*of_paths, strict=True))), waste
    )


def _finish_loading(loading: Fetching) -> Result:
    """The sum of all rates, each over its own time."""
    of_all = [one for found in loading.finish().values() for one in found]
    return Result(sum(received / seconds / 1000 for received, seconds in of_all))
