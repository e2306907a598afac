"""Many requests in few pieces: nothing is torn apart, every answer finds its request, no lost answer passes for a yes.

The kernel here is a real one, and nothing of it is changed: it is asked to delete devices and addresses that do not
exist, and to show the loopback device.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ap_agent.common.errors import AgentError
from ap_agent.dataplane.attributes import Message, text
from ap_agent.dataplane.rtsocket import LOST, Refusal, RefusedError, RtSocket

RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK, RTM_GETSTATS, RTM_NO_SUCH = 16, 17, 18, 94, 254
IFLA_IFNAME, TCA_KIND = 3, 1
NO_DEVICE = 0x7FFF_FFF0

IS_ROOT = os.geteuid() == 0
needs_root = pytest.mark.skipif(not IS_ROOT, reason="without CAP_NET_ADMIN the kernel refuses every request unread")


@pytest.fixture
def rt() -> Iterator[RtSocket]:
    one = RtSocket()
    yield one
    one.close()


def ask_for(ifindex: int) -> Message:
    """A request that does nothing: a question is answered with a message, or refused like any request."""
    return (RTM_GETLINK, 0, struct.pack("=BxHiII", 0, 0, ifindex, 0, 0))


def named(name: str) -> bytes:
    """The question for a device by its name."""
    return struct.pack("=BxHiII", 0, 0, 0, 0, 0) + text(IFLA_IFNAME, name)


def delete(ifindex: int) -> Message:
    return (RTM_DELLINK, 0, struct.pack("=BxHiII", 0, 0, ifindex, 0, 0))


def test_what_is_done_is_not_said_and_what_is_refused_is_named(rt: RtSocket) -> None:
    answers = rt.send([[ask_for(1)], [ask_for(NO_DEVICE)], [ask_for(1), ask_for(1)], [ask_for(1), ask_for(NO_DEVICE)]])
    assert [one and one.number for one in answers] == [None, errno.ENODEV, None, errno.ENODEV]


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.sampled_from([1, NO_DEVICE]), max_size=5), max_size=40),
    st.integers(32, 2000),
)
def test_any_division_into_pieces_gives_the_same_answers(groups: list[list[int]], piece_bytes: int) -> None:
    rt = RtSocket(piece_bytes=piece_bytes)
    try:
        answers = rt.send([[ask_for(one) for one in group] for group in groups])
    finally:
        rt.close()
    assert [one and one.number for one in answers] == [errno.ENODEV if NO_DEVICE in one else None for one in groups]


class Recorded(RtSocket):
    """Notes the length of every send."""

    def __init__(self, piece_bytes: int) -> None:
        self.sent: list[int] = []
        super().__init__(piece_bytes=piece_bytes)

    def _transmit(self, messages: Sequence[Message]) -> list[int]:
        self.sent.append(sum(16 + len(body) for _, _, body in messages))
        return super()._transmit(messages)


def test_a_group_is_never_torn_apart_and_a_piece_is_no_longer_than_allowed() -> None:
    rt = Recorded(piece_bytes=100)
    length = 32  # header and body of one question
    rt.send([[ask_for(1)]] * 7)
    rt.send([[ask_for(1)] * 5])
    rt.close()
    assert rt.sent == [2 * length] * 3 + [length] + [5 * length]


@needs_root
def test_more_refusals_than_the_receive_buffer_holds_are_all_accounted_for() -> None:
    """The first ones arrive, the rest is lost with the acknowledgement, and none of them passes for done."""
    rt = RtSocket(buffer_bytes=2048)
    count = 500
    answers = rt.send([[delete(NO_DEVICE)]] * count)
    numbers = [one.number for one in answers if one is not None]
    assert len(numbers) == count
    lost = [one for one in answers if one == Refusal(errno.ENOBUFS, LOST)]
    assert 0 < len(lost) < count
    assert {one.number for one in answers if one is not None and one not in lost} == {errno.ENODEV}
    # Nothing old is left over: the next request gets its own answer.
    assert rt.send([[ask_for(1)]]) == [None]
    rt.close()


def test_answers_that_do_not_fit_are_an_error_that_helps_nobody_to_a_wrong_answer() -> None:
    rt = RtSocket(buffer_bytes=4096)
    with pytest.raises(AgentError, match="too small; try again") as caught:
        rt.query_all(RTM_GETLINK, [named("lo")] * 32)
    assert caught.value.retryable
    (answer,) = rt.query_all(RTM_GETLINK, [named("lo")])
    assert isinstance(answer, bytes)  # nothing old is left over
    rt.close()


@pytest.mark.parametrize(
    ("kind", "body", "number"),
    [(RTM_NO_SUCH, b"\0" * 4, errno.EOPNOTSUPP), (RTM_GETSTATS, b"\0" * 12, errno.EINVAL)],
    ids=["at once", "with the word that it is over"],
)
def test_a_refused_dump_is_an_error(rt: RtSocket, kind: int, body: bytes, number: int) -> None:
    with pytest.raises(RefusedError) as caught:
        rt.dump(kind, body)
    assert caught.value.number == number
