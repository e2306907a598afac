"""Programs are loaded once, told by difference, and what they refuse is counted by link, whatever becomes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from ap_agent.common.errors import ApplyError
from ap_agent.model import FROM_USER_SLOT, IFB_MAJOR, NIC_MAJOR, Desired, DesiredTree, Device
from ap_agent.whole.bpf import BpfUnavailableError
from ap_agent.whole.entry import Entry, Refused
from ap_agent.whole.programs import REST_S, Programs
from ap_agent.whole.wanted import Admitted
from bandwidth_config import IPAddress, parse_ip

ETH0, IFB = Device(2, "eth0"), Device(0, "slbw0", kind="ifb")
A, B = parse_ip("192.0.2.11"), parse_ip("2001:db8::11")


@dataclass
class Kernel:
    """Loads programs that refuse what a test says."""

    error: Exception | None = None
    loaded: list[FakeProgram] = field(default_factory=list)

    def __call__(self, direction: str) -> FakeProgram:
        if self.error is not None:
            raise self.error
        self.loaded.append(FakeProgram(direction, 100 + len(self.loaded)))
        return self.loaded[-1]


@dataclass
class FakeProgram:
    direction: str
    program_id: int
    program_fd: int = 7
    entries: dict[IPAddress, Entry] = field(default_factory=dict)
    counts: dict[IPAddress, int] = field(default_factory=dict)
    is_closed: bool = False
    error: Exception | None = None

    def set(self, entries: Mapping[IPAddress, Entry]) -> int:
        if self.error is not None:
            raise self.error
        changed = len(self.entries.items() ^ entries.items())
        self.counts = {address: self.counts.get(address, 0) for address in entries}
        self.entries = dict(entries)
        return changed

    def put(self, address: IPAddress, entry: Entry) -> bool:
        if entry.kbit:
            self.entries[address] = entry
        else:
            del self.entries[address], self.counts[address]
        return True

    def refused(self) -> dict[IPAddress, Refused]:
        assert not self.is_closed
        return {address: Refused(count, count * 1514) for address, count in self.counts.items()}

    def close(self) -> None:
        self.is_closed = True


def entry(kbit: int) -> Entry:
    return Entry(kbit, 6250, 80_000, 50000)


def wanted(**admitted: dict[IPAddress, Admitted]) -> Desired:
    """`to_user` at eth0, `from_user` at the IFB."""
    nic = DesiredTree(ETH0, NIC_MAJOR, has_root=True, admitted=admitted.get("to_user", {}))
    return Desired((nic,), DesiredTree(IFB, IFB_MAJOR, has_root=True, admitted=admitted.get("from_user", {})))


@pytest.fixture
def kernel() -> Kernel:
    return Kernel()


@pytest.fixture
def programs(kernel: Kernel) -> Programs:
    made = Programs(kernel, monotonic=lambda: 0.0)
    assert made.unavailable() is None
    made.loaded((FROM_USER_SLOT, ETH0.ifindex))
    return made


def test_each_tree_has_its_program_and_each_is_loaded_once(kernel: Kernel, programs: Programs) -> None:
    programs.loaded((FROM_USER_SLOT, ETH0.ifindex))
    assert programs.unavailable() is None

    assert [one.direction for one in kernel.loaded] == ["from_user", "to_user"]


def test_what_is_the_same_is_not_written_again(kernel: Kernel, programs: Programs) -> None:
    both = wanted(to_user={A: Admitted(entry(500), 1)}, from_user={A: Admitted(entry(700), 1)})

    assert [programs.put(both), programs.put(both)] == [2, 0]
    assert [one.entries for one in kernel.loaded] == [{A: entry(700)}, {A: entry(500)}]


def test_one_that_no_tree_wants_is_closed_and_what_it_refused_stays(kernel: Kernel, programs: Programs) -> None:
    programs.put(wanted(to_user={A: Admitted(entry(500), 1)}))
    kernel.loaded[1].counts[A] = 9

    programs.put(wanted())

    assert [one.is_closed for one in kernel.loaded] == [False, True]  # the first one tells whether any can be had
    assert programs.refused() == {(1, "to_user"): 9}


def test_refusals_are_sums_over_all_programs_and_never_fall(kernel: Kernel, programs: Programs) -> None:
    there = {A: Admitted(entry(500), 1), B: Admitted(entry(500), 2)}
    programs.put(wanted(to_user=there))
    kernel.loaded[1].counts = {A: 5, B: 1}
    assert programs.refused() == {(1, "to_user"): 5, (2, "to_user"): 1}
    programs.close()
    assert programs.refused() == {(1, "to_user"): 5, (2, "to_user"): 1}

    programs.loaded((ETH0.ifindex,))
    programs.put(wanted(to_user=dict(there)))
    kernel.loaded[2].counts = {A: 3, B: 0}

    assert programs.refused() == {(1, "to_user"): 8, (2, "to_user"): 1}
    assert programs.refused() == {(1, "to_user"): 8, (2, "to_user"): 1}


def test_an_address_that_another_link_guards_now_counts_for_it_from_now_on(kernel: Kernel, programs: Programs) -> None:
    programs.put(wanted(to_user={A: Admitted(entry(500), 1)}))
    kernel.loaded[1].counts[A] = 5
    programs.put(wanted(to_user={A: Admitted(entry(400), 2)}))
    kernel.loaded[1].counts[A] = 7

    assert programs.refused() == {(1, "to_user"): 5, (2, "to_user"): 2}


def test_what_an_address_refused_that_leaves_is_counted(kernel: Kernel, programs: Programs) -> None:
    programs.put(wanted(to_user={A: Admitted(entry(500), 1), B: Admitted(entry(500), 2)}))
    kernel.loaded[1].counts[A] = 5
    programs.put(wanted(to_user={B: Admitted(entry(500), 2)}))

    assert programs.refused() == {(1, "to_user"): 5}


def test_an_address_that_left_and_came_back_begins_again(kernel: Kernel, programs: Programs) -> None:
    here = {A: Admitted(entry(500), 1), B: Admitted(entry(500), 2)}
    programs.put(wanted(to_user=here))
    kernel.loaded[1].counts[A] = 5
    assert programs.change({ETH0.ifindex: {B: here[B]}}, [A]) == 1
    assert programs.change({ETH0.ifindex: dict(here)}, [A]) == 1
    kernel.loaded[1].counts[A] = 6

    assert programs.refused() == {(1, "to_user"): 11}


def test_a_process_without_rights_says_so_and_asks_again_after_a_while() -> None:
    kernel, clock = Kernel(error=BpfUnavailableError("The kernel refuses a BPF map", "give the agent CAP_BPF")), [0.0]
    programs = Programs(kernel, monotonic=lambda: clock[0])

    problem = programs.unavailable()

    assert problem is not None
    assert problem.message.startswith("Datagrams are not admitted whole. The kernel refuses a BPF map; give the agent")
    kernel.error = None
    assert programs.unavailable() == problem
    clock[0] = REST_S
    assert programs.unavailable() is None


def test_one_of_several_that_cannot_be_loaded_is_told(kernel: Kernel) -> None:
    programs = Programs(kernel, monotonic=lambda: 0.0)
    assert programs.unavailable() is None
    kernel.error = BpfUnavailableError("There is no room for a BPF map", "it is tried again")

    assert list(programs.loaded((FROM_USER_SLOT, ETH0.ifindex))) == [FROM_USER_SLOT]

    assert programs.problem is not None
    assert programs.unavailable() == programs.problem
    programs.do_without()
    assert programs.problem is None


def test_a_program_that_took_only_a_part_is_given_up_for_another(kernel: Kernel, programs: Programs) -> None:
    there = wanted(to_user={A: Admitted(entry(500), 1)})
    kernel.loaded[1].error = OSError(28, "No space left on device")

    assert programs.put(there) == 0

    assert kernel.loaded[1].is_closed
    assert programs.problem is not None
    assert "No space left" in programs.problem.message
    assert programs.loaded((ETH0.ifindex,))[ETH0.ifindex].number == 102
    both = {**there.nics[0].admitted, B: Admitted(entry(500), 2)}
    assert programs.change({ETH0.ifindex: both}, [B]) == 0  # that would be B alone
    assert programs.put(there) == 1


def test_a_kernel_that_takes_no_filter_is_left_alone_for_a_while() -> None:
    kernel, clock = Kernel(), [0.0]
    programs = Programs(kernel, monotonic=lambda: clock[0])
    assert programs.unavailable() is None

    programs.give_up(ApplyError("eth0: admit whole datagrams", 2, "No such file or directory"))

    problem = programs.unavailable()
    assert problem is not None
    assert "this kernel has no cls_bpf" in problem.message
    assert kernel.loaded[0].is_closed
    clock[0] = REST_S
    assert programs.unavailable() is None
    assert len(kernel.loaded) == 2
