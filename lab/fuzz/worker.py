"""One fuzzing process; `runs` starts it, gives it its folders and takes them away.

Ends with 0 when nothing was found; libFuzzer ends with 77 when something was, and leaves the input in `--crashes`.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import resource
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

_MEMORY_BYTES = 2 << 30  # of address space: what allocates on the word of an input fails here, and is found
_STATS_EVERY = 500
_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab.fuzz.worker")
    parser.add_argument("target")
    parser.add_argument("--runs", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--crashes", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True, help="for the state directory, the corpus and stats.json")
    parser.add_argument("--plant")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> None:
    """Does not come back: libFuzzer ends the process."""
    import atheris  # type: ignore[import-untyped]  # noqa: PLC0415  # prints as soon as it is imported

    given = parse(argv)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # nobody would end it, were its parent killed
    with atheris.instrument_imports(
        include=["ap_agent", "bandwidth_config", "link_info", "link_rules", "lab.fuzz.planted"]
    ):
        from lab.fuzz import planted, targets  # noqa: PLC0415  # after the instrumentation has begun
    if given.plant is not None:
        planted.PLANTED[given.plant].put_in()
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    target = targets.Target(given.target, given.folder / "host")
    corpus = given.folder / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(targets.seeds(given.target)):
        (corpus / f"seed-{number}").write_bytes(seed)
    stats = given.folder / "stats.json"

    def try_input(data: bytes) -> None:
        target.try_input(data)
        if target.seen.inputs % _STATS_EVERY == 0 or target.seen.inputs >= given.runs:
            stats.write_text(json.dumps(vars(target.seen)))

    def bend(data: bytes, size: int) -> bytes:
        bent: bytes = atheris.Mutate(data, size)  # another function than before Setup, so not to be handed on as it is
        return bent

    options = [
        str(corpus),
        f"-runs={given.runs}",
        f"-seed={given.seed}",
        f"-max_len={targets.MAX_INPUT_BYTES}",
        "-mutate_depth=2",  # the mutators make several changes themselves, and repair what is around them
        "-timeout=60",  # the promise about time is the target's; this is for what never comes back
        "-rss_limit_mb=0",  # RLIMIT_AS is stricter
        f"-artifact_prefix={given.crashes}/",
    ]
    atheris.Setup([sys.argv[0], *options], try_input, custom_mutator=targets.mutator(given.target, bend))
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
