"""What a kernel and a process can do: read without rights, tried with them, and said with a remedy."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest

from ap_agent.selftest import capabilities, command
from ap_agent.selftest.capabilities import KernelFiles, parse_config, process_capabilities, try_one, unread
from ap_agent.selftest.features import FEATURES, State, Use
from ap_agent.whole.bpf import BpfUnavailableError
from measuring.netns import LabError

HTB = next(one for one in FEATURES if one.name == "htb")
WIDE = next(one for one in FEATURES if one.name == "64-bit rates")
NOTHING = KernelFiles({}, frozenset(), frozenset())


@pytest.mark.parametrize(
    ("bits", "present"),
    [
        ("000001ffffffffff", {"CAP_NET_ADMIN", "CAP_SYS_ADMIN", "CAP_BPF"}),
        ("0000000000001000", {"CAP_NET_ADMIN"}),
        ("0000008000001000", {"CAP_NET_ADMIN", "CAP_BPF"}),
        ("0000000000000000", set()),
    ],
)
def test_capabilities_are_bits_of_the_effective_set(bits: str, present: set[str]) -> None:
    found = process_capabilities(f"Name:\tx\nCapPrm:\t000001ffffffffff\nCapEff:\t{bits}\n")

    assert {one.name for one in found if one.state is State.PRESENT} == present
    assert all(one.remedy for one in found if one.state is State.MISSING)


def test_only_what_is_optional_may_be_missing() -> None:
    found = {one.name: one.is_in_the_way for one in process_capabilities("CapEff:\t0\n")}

    assert found == {"CAP_NET_ADMIN": True, "CAP_SYS_ADMIN": True, "CAP_BPF": False}


@pytest.mark.parametrize(
    ("files", "is_there", "words"),
    [
        (KernelFiles({}, frozenset(), frozenset({"sch_htb"})), True, "loaded"),
        (KernelFiles({}, frozenset({"sch_htb"}), frozenset()), True, "installed"),
        (KernelFiles({"CONFIG_NET_SCH_HTB": "y"}, frozenset(), frozenset()), True, "built into"),
        (KernelFiles({"CONFIG_NET_SCH_HTB": "m"}, frozenset(), frozenset()), None, "not found"),
        (KernelFiles({"CONFIG_NET": "y"}, frozenset(), frozenset()), False, "not set"),
        (NOTHING, None, "do not say"),
    ],
)
def test_files_of_the_kernel_tell_what_it_has(files: KernelFiles, is_there: bool | None, words: str) -> None:
    found, detail = files.has("sch_htb", "CONFIG_NET_SCH_HTB")

    assert found is is_there
    assert words in detail


def test_without_rights_nothing_is_called_present_that_was_not_tried() -> None:
    everything = KernelFiles({one.config: "y" for one in FEATURES}, frozenset(), frozenset())

    assert {one.state for one in unread(everything)} == {State.UNTRIED}


def test_a_module_that_the_kernel_was_made_without_is_missing_also_untried() -> None:
    without = KernelFiles({"CONFIG_NET": "y"}, frozenset(), frozenset())
    (htb,) = (one for one in unread(without) if one.name == "htb")

    assert htb.is_in_the_way
    assert "modprobe sch_htb" in htb.remedy


def test_a_kernel_configuration_is_read_with_its_remarks() -> None:
    assert parse_config("# CONFIG_NET_SCH_SFQ is not set\nCONFIG_NET_SCH_HTB=m\nCONFIG_IFB=y\n") == {
        "CONFIG_NET_SCH_HTB": "m",
        "CONFIG_IFB": "y",
    }


def test_what_the_kernel_refuses_is_missing_with_its_words_and_a_remedy() -> None:
    def run(*argv: str) -> str:
        if "class" in argv:
            raise LabError("`tc class add` ended with 2: Error: Specified qdisc\nkind is unknown.")
        return ""

    found = try_one(HTB, run)

    assert (found.state, found.use) == (State.MISSING, Use.LIMITS)
    assert found.detail.endswith("Error: Specified qdisc kind is unknown")
    assert "modprobe sch_htb" in found.remedy


@pytest.mark.parametrize(("said", "state"), [("rate 40Gbit ceil", State.PRESENT), ("rate 1410Mbit", State.MISSING)])
def test_what_the_kernel_takes_and_does_not_keep_is_missing(said: str, state: State) -> None:
    assert try_one(WIDE, lambda *_: said).state is state


def test_what_helps_against_a_missing_capability_names_it_as_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_direction: str) -> None:
        raise BpfUnavailableError("The kernel refuses a BPF map", "give the agent CAP_BPF")

    monkeypatch.setattr(capabilities, "Admission", refuse)

    found = capabilities.try_ebpf()

    assert (found.state, found.remedy) == (State.MISSING, "Give the agent CAP_BPF.")


def test_an_inner_half_that_is_ended_in_the_middle_of_its_report_broke(monkeypatch: pytest.MonkeyPatch) -> None:
    said = '{"step": "1 Gbit/s", "left_s": 3.0}\n{"report": {"schema"'
    program = [sys.executable, "-c", f"print({said!r}, end='')"]
    started = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    monkeypatch.setattr(command.apart, "start", lambda _module: started)
    monkeypatch.setattr(command, "what_is_missing", list)

    with pytest.raises(command.SelfTestError, match=r"ended at the step '1 Gbit/s'"):
        command.selftest(as_json=False, progress=io.StringIO())
