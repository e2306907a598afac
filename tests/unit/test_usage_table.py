"""`scionlab-bw-agent usage`: what it prints of the spool, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ap_agent.commands import commands
from ap_agent.usage.batch import Batch
from ap_agent.usage.lives import Row
from ap_agent.usage.reading import Key
from ap_agent.usage.spool import Spool
from ap_agent.usage.table import read_report, table
from tests.agent_host import Host

BEGAN = 1_795_300_020_000
TO_USER: Key = (1, "to_user")
FROM_USER: Key = (1, "from_user")
BLOCKED: Key = (12, "to_user")


@pytest.fixture
def host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Host:
    return Host(tmp_path, capsys)


def row(size: int, *, kbit: int = 800, drops: int = 0, segment: str = "4141", backlog: int = 0) -> Row:
    return Row(segment, kbit, size, size // 1000, drops, backlog, 0, drops)


def spooled(folder: Path, *samples: dict[Key, Row], step_ms: int = 10_000) -> Path:
    spool, batch = Spool(folder / "usage"), Batch("1.18")
    carried = [(BEGAN - step_ms, samples[0])] if len(samples) > 1 else []
    spool.begin(batch, BEGAN, carried)
    for number, rows in enumerate(samples[1:] if carried else samples):
        batch.add(BEGAN + number * step_ms, rows)
        spool.append(BEGAN + number * step_ms, rows)
    return spool.folder


def test_table_says_what_was_used_of_the_limit_between_the_two_newest_samples(tmp_path: Path) -> None:
    first = {TO_USER: row(5_000), FROM_USER: row(0), BLOCKED: row(0, kbit=0)}
    last = {
        TO_USER: row(1_005_000, drops=125, backlog=9756),
        FROM_USER: row(1_000, kbit=1_500),
        BLOCKED: row(0, kbit=0, drops=40),
    }
    report = read_report(spooled(tmp_path, first, last))
    assert report is not None

    assert (
        "\n".join(table(report))
        == """\
link  direction         limit kbit/s  used kbit/s  of it  drops/s  queued B    bytes  drops
   1  from the user AS         1 500          0.8     0%      0.0         0     1000      0
   1  to the user AS             800        800.0   100%     12.5      9756  1005000    125
  12  to the user AS         blocked          0.0      -      4.0         0        0     40"""
    )


@pytest.mark.parametrize("why", ["one sample", "a gap", "another segment", "a new link"])
def test_no_rate_is_said_where_none_is_known(tmp_path: Path, why: str) -> None:
    first = {} if why == "a new link" else {TO_USER: row(5_000)}
    last = {TO_USER: row(9_000, segment="4242" if why == "another segment" else "4141")}
    samples = [last] if why == "one sample" else [first, last]
    report = read_report(spooled(tmp_path, *samples, step_ms=31_000 if why == "a gap" else 10_000))
    assert report is not None

    one = report.used[TO_USER]
    assert (one.used_kbit, one.drops_per_s, one.bytes) == (None, None, 9_000)
    assert " -  " in table(report)[1]


def test_command_prints_it_for_people_and_for_programs(host: Host) -> None:
    spooled(host.state, {TO_USER: row(5_000)}, {TO_USER: row(1_005_000)})

    assert host.agent("usage") == commands.OK
    assert host.out.startswith("Counted ")
    assert "configuration 1.18" in host.out
    assert host.agent("usage", "--json") == commands.OK
    document = json.loads(host.out)
    assert (document["at"], document["version"]) == ("2026-11-21T22:27:00.000Z", "1.18")
    assert document["links"]["1"]["to_user"]["used_kbit"] == 800.0


def test_rate_is_known_right_after_a_batch_was_closed(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "usage")
    spool.begin(Batch("1.18"), BEGAN, [(BEGAN - 10_000, {TO_USER: row(0)}), (BEGAN - 1, {TO_USER: row(10_000)})])
    spool.save()
    report = read_report(spool.folder)

    assert report is not None
    assert report.used[TO_USER].used_kbit == 8.0


def test_command_without_a_sample_says_so(host: Host) -> None:
    assert host.agent("usage") == commands.NOT_DONE
    assert "Nothing was counted yet" in host.err


def test_command_reads_around_a_torn_end(host: Host) -> None:
    folder = spooled(host.state, {TO_USER: row(5_000)}, {TO_USER: row(1_005_000)})
    (path,) = folder.iterdir()
    path.write_bytes(path.read_bytes()[:-1])

    assert host.agent("usage", "--json") == commands.OK
    assert json.loads(host.out)["links"]["1"]["to_user"]["bytes"] == 5_000


def test_command_of_somebody_else_says_who_may(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(_folder: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(commands, "read_report", closed)
    assert host.agent("usage") == commands.NOT_PERMITTED
    assert "root" in host.err
