"""What the agent sends is what the service reads: each sample of each link, whatever was counted."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from ap_agent.usage.batch import MAX_TIMES, Batch
from ap_agent.usage.lives import Row
from ap_agent.usage.reading import Key
from ap_agent.usage.spool import Spool
from bandwidth_config import MAX_INTERFACE_ID
from scionlab.api.usage_format import MAX_COUNTER, MAX_RATE_KBIT, parse_usage, read_body

MINUTE = 1_795_300_020_000
COUNTERS = st.integers(0, MAX_COUNTER)
ROWS = st.builds(
    Row,
    st.sampled_from(["4141aaaa", "7fffffff-0badcafe"]),
    st.integers(0, MAX_RATE_KBIT),
    COUNTERS,
    COUNTERS,
    COUNTERS,
    COUNTERS,
    st.just(0),
    st.just(0),
)
KEYS: st.SearchStrategy[Key] = st.tuples(st.integers(1, MAX_INTERFACE_ID), st.sampled_from(["to_user", "from_user"]))  # type: ignore[assignment]
SAMPLES = st.lists(
    st.tuples(st.integers(1, 60_000 // MAX_TIMES), st.dictionaries(KEYS, ROWS, min_size=1, max_size=5)),
    min_size=1,
    max_size=8,
)


@settings(max_examples=25, deadline=None)
@given(samples=SAMPLES, version=st.tuples(st.integers(0, 9999), st.integers(0, 9999)))
def test_every_sample_arrives(samples: list[tuple[int, dict[Key, Row]]], version: tuple[int, int]) -> None:
    batch, at_ms, sent = Batch("{}.{}".format(*version)), MINUTE, []
    for pause_ms, rows in samples:
        at_ms += pause_ms
        if batch.takes(at_ms, rows, batch.version):
            batch.add(at_ms, rows)
            sent.append((at_ms, rows))
    with tempfile.TemporaryDirectory() as folder:
        spool = Spool(Path(folder) / "usage")
        spool.close(batch)
        (path,) = spool.closed()
        body = path.read_bytes()

    read = parse_usage(read_body(lambda _size: body, "gzip"))

    assert (read.key, read.version) == (batch.id, version)
    assert list(read.times_ms) == [moment for moment, _ in sent]
    arrived = {
        (one.at_ms, number, direction): (said.segment, *one[1:])
        for number, directions in read.links.items()
        for direction, said in directions.items()
        for one in said.samples
    }
    assert arrived == {(moment, *key): row[:6] for moment, rows in sent for key, row in rows.items()}
    assert gzip.decompress(body) == batch.text()
