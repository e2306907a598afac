"""What the agent sends is what the service reads: each sample of each link, whatever was counted."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ap_agent.usage.batch import MAX_TIMES, Key, Row, Sample, body, fits, new_batch_id, segment_text
from contract.link_rules import MAX_INTERFACE_ID
from scionlab.delivery.host_api.bodies import read_body
from scionlab.usage.host_api.usage_format import MAX_COUNTER, MAX_RATE_KBIT, parse_usage

MINUTE = 1_795_300_020_000
COUNTERS = st.integers(0, MAX_COUNTER)
ROWS = st.builds(
    Row,
    st.sampled_from([0x4141AAAA, 0x10BADCAFE, 2**64 - 1]),
    st.integers(0, MAX_RATE_KBIT),
    COUNTERS,
    COUNTERS,
    COUNTERS,
    COUNTERS,
)
KEYS: st.SearchStrategy[Key] = st.tuples(st.integers(1, MAX_INTERFACE_ID), st.sampled_from(["to_user", "from_user"]))  # type: ignore[assignment]
SAMPLES = st.lists(
    st.tuples(st.integers(1, 60_000 // MAX_TIMES), st.dictionaries(KEYS, ROWS, min_size=1, max_size=5)),
    min_size=1,
    max_size=8,
)


@settings(max_examples=25)
@given(samples=SAMPLES, version=st.tuples(st.integers(0, 9999), st.integers(0, 9999)))
def test_every_sample_arrives(samples: list[tuple[int, dict[Key, Row]]], version: tuple[int, int]) -> None:
    sent: list[Sample] = []
    at_ms, name, batch_id = MINUTE, "{}.{}".format(*version), new_batch_id()
    for pause_ms, rows in samples:
        at_ms += pause_ms
        one = Sample(at_ms, name, rows)
        if fits(sent, one):
            sent.append(one)
    data = body(batch_id, sent)

    read = parse_usage(read_body(lambda _size: data, "gzip"))

    assert (read.key, read.version) == (batch_id, version)
    assert list(read.times_ms) == [one.at_ms for one in sent]
    arrived = {
        (one.at_ms, number, direction): (
            said.segment,
            *(one.limit_kbit, one.bytes, one.packets, one.drops, one.backlog_bytes),
        )
        for number, directions in read.links.items()
        for direction, said in directions.items()
        for one in said.samples
    }
    assert arrived == {
        (one.at_ms, *key): (segment_text(row.segment), *row[1:]) for one in sent for key, row in one.rows.items()
    }
