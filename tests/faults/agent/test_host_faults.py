"""Faults of the agent's host, made for real while its service runs.

The last limits stay in the kernel, the fault is named, and when it is over the agent goes on by itself.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.agent_service import status
from tests.faults.agent.conftest import MS_RDONLY, MS_REMOUNT, World, eventually

OLD, NEW = {1: 500, 2: 300}, {1: 900, 3: 700}


def begin(world: World, **options: object) -> int:
    """A running agent that has stored, enforced and told of the old limits."""
    old = world.offer(OLD)
    pid = world.start("run", "agent", **options)
    eventually(lambda: world.told(old), world.said)
    assert world.enforces(OLD)
    return pid


def outlives(world: World, pid: int, code: str, end_of_fault: Callable[[], object]) -> str:
    """The service has something new, and the fault keeps the agent from it. Returns how the fault was called."""
    new = world.offer(NEW)
    eventually(lambda: code in world.problems(), lambda: f"{world.problems()}\n{world.said()}")
    said = world.problems()[code]
    assert world.enforces(OLD), world.limits()
    assert f"problem.begin code={code}" in world.said()
    end_of_fault()
    converges(world, pid, new)
    return said


def converges(world: World, pid: int, new: str) -> None:
    """To `NEW`, without anybody's help, and by the same process."""
    eventually(lambda: world.told(new) and not world.problems(), lambda: f"{world.problems()}\n{world.said()}")
    assert world.enforces(NEW), world.limits()
    assert world.stored() == new
    world.stop(pid)


# --- the disk ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def small_disk(world: World, size: str) -> Iterator[Path]:
    """The state directory on a tmpfs that the agent alone has. Yields the way to it from here."""
    world.state.mkdir()
    world.zygote.do("mount", kind="tmpfs", path=str(world.state), flags=0, data=f"{size},mode=0700")
    try:
        yield world.zygote.sees(world.state)
    finally:
        world.zygote.do("unmount", path=str(world.state))


def test_disk_full(world: World) -> None:
    with small_disk(world, "size=256k") as state:
        pid = begin(world)
        filler = state / "filler"
        with pytest.raises(OSError, match="No space left"):
            filler.write_bytes(bytes(1 << 20))
        assert "No space left" in outlives(world, pid, "state_unusable", filler.unlink)


def test_disk_read_only(world: World) -> None:
    world.configure(usage_interval_s=0)  # a file that is open for writing keeps a disk from becoming read-only
    with small_disk(world, "size=256k"):
        pid = begin(world)
        mount_anew = partial(world.zygote.do, "mount", kind="tmpfs", path=str(world.state), data="size=256k")
        mount_anew(flags=MS_REMOUNT | MS_RDONLY)
        said = outlives(world, pid, "state_unusable", lambda: mount_anew(flags=MS_REMOUNT))
        assert "Read-only file system" in said


def test_disk_that_cannot_sync(world: World) -> None:
    """The switch never happens on the word of a disk that failed: what it holds then is unknown."""
    switch = world.folder / "state-fails"
    pid = begin(world, disk_that_cannot_sync=str(world.state))
    switch.touch()
    assert "Input/output error" in outlives(world, pid, "state_unusable", switch.unlink)


# --- the state directory is gone --------------------------------------------------------------------------------------


def test_state_directory_deleted_while_it_runs(world: World) -> None:
    pid = begin(world)
    old = world.stored()
    world.state.rename(world.folder / "gone")  # in one step: the agent is quick
    eventually(lambda: world.stored() == old, world.said)  # it has everything, and writes it again
    new = world.offer(NEW)
    converges(world, pid, new)


def test_state_directory_missing_at_the_start(world: World) -> None:
    """Nothing is known of what was wanted, and nobody can be asked: what is in the kernel is left alone."""
    pid = begin(world)
    world.stop(pid)
    shutil.rmtree(world.state)
    world.service.answers["/config"] = status(503)
    pid = world.start("run")
    eventually(lambda: "service_unreachable" in world.problems(), world.said)
    assert world.enforces(OLD)
    new = world.offer(NEW)
    world.configure(service_keys=world.keys())  # with its state it lost the rotations since it was enrolled
    os.kill(pid, signal.SIGHUP)
    converges(world, pid, new)


# --- other resources --------------------------------------------------------------------------------------------------


def test_no_file_descriptors_left(world: World) -> None:
    pid = begin(world)
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, before[1]))
    new = world.offer(NEW)
    eventually(lambda: "Too many open files" in world.said(), world.said)
    assert world.enforces(OLD)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    converges(world, pid, new)


def test_no_memory_left(world: World) -> None:
    """Nothing can be promised of a process without memory but this: it does no harm, and never hangs."""
    pid = begin(world)
    before = resource.prlimit(pid, resource.RLIMIT_AS)
    resource.prlimit(pid, resource.RLIMIT_AS, (1 << 20, before[1]))  # what it has it keeps; there is no more
    new = world.offer(NEW)
    eventually(lambda: "MemoryError" in world.said(), world.said)
    for link, rates in world.limits().items():  # what it kept may last for the one or the other, never for neither
        begun = set() if link in OLD else {-1}  # a new one may have its first direction only
        assert set(rates) <= {OLD.get(link), NEW.get(link), *begun}
    assert world.limits().keys() >= OLD.keys() & NEW.keys()
    resource.prlimit(pid, resource.RLIMIT_AS, before)
    converges(world, pid if world.ended(pid, 1.0) is None else world.start("run"), new)


def test_permission_for_the_kernel_lost(world: World) -> None:
    """It is the limiter's; the agent has none."""
    world.kill(world.limiter)
    limiter = world.start("run", "limiter", permission_switch=None)
    pid = begin(world)
    os.kill(limiter, signal.SIGUSR1)
    outlives(world, pid, "not_permitted", lambda: os.kill(limiter, signal.SIGUSR2))
