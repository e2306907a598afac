"""A short run of the fuzzer over everything that the agent reads from the network, and the proof that it finds bugs.

`./dev bench fuzz` tries a million inputs; what it looks for is in `lab.fuzz.targets`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.fuzz import runs
from lab.fuzz.__main__ import command_of, main
from lab.fuzz.planted import PLANTED
from lab.fuzz.targets import TARGETS, Target, seeds

MISSING = runs.missing()
needs_fuzzer = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
INPUTS = {"link_info": 4000, "manifest": 3000, "bundle": 1500}
ENOUGH = 30_000  # inputs; each planted bug was found within 6000
DEADLINE_S = 100.0


@pytest.mark.parametrize("name", TARGETS)
def test_what_the_fuzzer_begins_with_is_accepted(name: str, tmp_path: Path) -> None:
    target = Target(name, tmp_path / "host")
    for seed in seeds(name):
        target.try_input(seed)
    assert target.seen.ends == {"accepted": len(seeds(name))}


@needs_fuzzer
@pytest.mark.parametrize("name", TARGETS)
def test_no_input_breaks_a_promise(name: str, tmp_path: Path) -> None:
    found = runs.fuzz(name, runs=INPUTS[name], crashes=tmp_path, seconds=DEADLINE_S)

    assert not found.crashes, f"{found.said[-3000:]}\n{command_of(name, found.crashes)}"
    assert found.inputs == INPUTS[name]
    assert found.ends["accepted"] > INPUTS[name] // 100  # it does not stop at the door
    print(f"  measured: target={name} inputs={found.inputs} s={found.seconds:.1f} ends={len(found.ends)}")


@needs_fuzzer
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found_and_its_input_kept(name: str, tmp_path: Path) -> None:
    bug = PLANTED[name]
    found = runs.fuzz(bug.target, runs=ENOUGH, crashes=tmp_path, plant=name, seconds=DEADLINE_S)

    assert bug.says in found.said, found.said[-2000:]
    assert len(found.crashes) == 1
    assert main([bug.target, str(found.crashes[0])]) == 0  # without the bug nothing is wrong with it
