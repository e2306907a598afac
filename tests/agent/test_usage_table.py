"""The newest sample as `scionlab-bw-agent usage` shows it."""

from __future__ import annotations

from pathlib import Path

from ap_agent.usage.batch import Key, Row, Sample
from ap_agent.usage.spool import FILE_NAME, Spool
from ap_agent.usage.table import read_report, table
from contract.link_info import check_link_info
from tests.agent_bundles import entry

BEGAN = 1_795_300_020_000
TO_USER: Key = (1, "to_user")
FROM_USER: Key = (1, "from_user")
BLOCKED: Key = (12, "to_user")


def row(size: int, *, kbit: int = 800, drops: int = 0, segment: int = 0x4141, backlog: int = 0) -> Row:
    return Row(segment, kbit, size, size // 1000, drops, backlog)


def spooled(folder: Path, *samples: dict[Key, Row]) -> Path:
    """Each 10 s after the one before it."""
    spool = Spool(folder / FILE_NAME)
    for number, rows in enumerate(samples):
        with spool.changes():
            spool.add_sample(Sample(BEGAN + number * 10_000, "1.18", rows))
    spool.close()
    return spool.path


def test_table_says_what_was_used_of_the_limit_between_the_two_newest_samples(tmp_path: Path) -> None:
    first = {TO_USER: row(5_000), FROM_USER: row(0), BLOCKED: row(0, kbit=0)}
    last = {
        TO_USER: row(1_005_000, drops=125, backlog=9756),
        FROM_USER: row(1_000, kbit=2),
        BLOCKED: row(0, kbit=0, drops=40),
    }
    report = read_report(spooled(tmp_path, first, last))
    assert report is not None

    assert "\n".join(table(report, check_link_info({"1": entry(800)}))).replace("\N{NO-BREAK SPACE}", " ") == (
        "LINK  USER AS       DIRECTION              LIMIT        USED  OF LIMIT  DROPS/S\n"
        "   1  17-ffaa:1:b6  to the user AS    800 kbit/s  800 kbit/s      100%     12.5\n"
        "   1  17-ffaa:1:b6  from the user AS    2 kbit/s    1 kbit/s       40%      0.0\n"
        "  12  -             to the user AS       blocked    0 kbit/s         -      4.0"
    )


def test_report_for_programs_has_the_same(tmp_path: Path) -> None:
    report = read_report(spooled(tmp_path, {TO_USER: row(5_000)}, {TO_USER: row(1_005_000)}))
    assert report is not None
    document = report.to_json()

    assert (document["at"], document["version"]) == ("2026-11-21T22:27:10.000Z", "1.18")
    assert document["links"]["1"]["to_user"]["used_kbit"] == 800.0
