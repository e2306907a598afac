"""Exactly CAP_NET_ADMIN and CAP_BPF are enough, for a user who can never get more; without one it is said which."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ap_agent.common.errors import AgentError
from ap_agent.dataplane.engine import Engine
from ap_agent.dataplane.program import OBJECT
from measuring.iproute import available, run_command
from tests.kernel.engine_bed import EngineBed, engine_bed, link, wanted

pytestmark = pytest.mark.kernel
UID = 65_533
CAPABILITIES = {"net_admin": 12, "bpf": 39}  # linux/capability.h
PR_SET_KEEPCAPS, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 8, 24, 38
CAPSET, CAPABILITY_VERSION = 126, 0x20080522  # of x86-64
ONE = wanted(link(7, 500, 1000))


@pytest.fixture
def bed() -> Iterator[EngineBed]:
    if (missing := available()) is not None:
        pytest.skip(missing)
    if os.uname().machine != "x86_64":
        pytest.skip("the number of capset(2) is that of x86-64")
    with engine_bed() as made:
        made.maps_dir.parent.chmod(0o755)
        made.maps_dir.mkdir()
        run_command(["mount", "-t", "bpf", "bpf", str(made.maps_dir)])
        os.chown(made.maps_dir, UID, UID)
        made.maps_dir.chmod(0o700)
        shutil.copy(OBJECT, made.maps_dir.with_name("limiter.bpf.o"))
        yield made


def _become(rights: tuple[str, ...]) -> None:
    """This process becomes another user with exactly these capabilities, for good."""
    libc = ctypes.CDLL(None, use_errno=True)
    bits = [CAPABILITIES[one] for one in rights]
    for one in range(64):
        if one not in bits:
            libc.prctl(PR_CAPBSET_DROP, one, 0, 0, 0)
    assert libc.prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) == 0
    os.setgroups([])
    os.setresgid(UID, UID, UID)
    os.setresuid(UID, UID, UID)
    mask = sum(1 << one for one in bits)
    low, high = mask & 0xFFFF_FFFF, mask >> 32
    header, sets = struct.pack("=Ii", CAPABILITY_VERSION, 0), struct.pack("=6I", low, low, 0, high, high, 0)
    assert libc.syscall(CAPSET, header, sets) == 0, os.strerror(ctypes.get_errno())
    assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0


def _outcome(maps_dir: Path, what: str) -> list[Any]:
    try:
        engine = Engine(maps_dir, object_file=maps_dir.with_name("limiter.bpf.o"))
        outcome = engine.reset() if what == "reset" else getattr(engine, what)(ONE)
    except AgentError as exc:
        return [type(exc).__name__, getattr(exc, "code", ""), exc.message]
    codes = [one.code for one in outcome.problems]
    return [outcome.is_ok, outcome.writes, codes, len(outcome.plan.operations)]


def run(bed: EngineBed, what: str, *rights: str) -> list[Any]:
    """[is it ok, writes, codes of problems, operations of the plan], or [error, code, message]."""

    def forked() -> list[Any]:
        ours, theirs = os.pipe()
        if not os.fork():
            try:
                _become(rights)
                os.write(theirs, json.dumps(_outcome(bed.maps_dir, what)).encode())
            except BaseException as exc:
                os.write(theirs, json.dumps([repr(exc), "", ""]).encode())
            finally:
                os._exit(0)
        os.close(theirs)
        with os.fdopen(ours) as pipe:
            said = json.loads(pipe.read())
        os.wait()
        return list(said)

    return bed.ap.call(forked)


def test_two_capabilities_are_enough_for_all_of_it(bed: EngineBed) -> None:
    rights = ("net_admin", "bpf")
    before = bed.snapshot()
    planned = run(bed, "plan", *rights)
    assert planned[:3] == [True, 0, []]
    assert run(bed, "enforce", *rights) == [True, planned[3], [], planned[3]]
    assert run(bed, "enforce", *rights) == [True, 0, [], 0]
    assert bed.received_kbit(to_user=True) == pytest.approx(500, abs=220)
    assert bed.received_kbit(to_user=False) == pytest.approx(1000, abs=220)
    assert (bed.maps_dir / "lanes-5").stat().st_uid == UID
    assert run(bed, "reset", *rights)[0] is True
    assert bed.snapshot() == before
    assert not any("." not in one.name for one in bed.maps_dir.iterdir())


def test_without_cap_bpf_it_is_named_and_nothing_is_touched(bed: EngineBed) -> None:
    before = bed.snapshot()
    kind, code, message = run(bed, "enforce", "net_admin")
    assert (kind, code) == ("NotPermittedError", "no_bpf_right")
    assert "CAP_BPF" in message
    assert bed.snapshot() == before


def test_without_cap_net_admin_it_is_named(bed: EngineBed) -> None:
    kind, _, message = run(bed, "enforce", "bpf")
    assert kind == "NotPermittedError"
    assert "CAP_NET_ADMIN" in message


def test_a_plan_needs_no_right(bed: EngineBed) -> None:
    before = bed.snapshot()
    is_ok, writes, problems, operations = run(bed, "plan")
    assert (is_ok, writes, problems) == (True, 0, [])
    assert operations > 5
    assert bed.snapshot() == before
