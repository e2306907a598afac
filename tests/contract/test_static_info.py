"""staticInfoConfig.json: what is in it, on which host, and what the stock client makes of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bandwidth_config import Limits, LinkStep, TimedLimits
from config_tar import snapshot
from contract.scion_files import PATH_METADATA_PATH, build_path_metadata
from tests.cases import table
from tests.contract.config_samples import AP_HOST, SampleHost, members_of, tar_of
from tests.contract.stock_client import StockHost, complaints

# Interface 1 leads to the core; of the users 2 has 500 kbit/s, 10 is blocked, 11 wants 5000 of at most 1000.


@dataclass(frozen=True)
class SampleAttachmentPoint:
    publishes_limits: bool = True
    metadata_entries: dict[str, Any] = field(default_factory=dict)
    observe_only: bool = False


def host_with(**values: Any) -> SampleHost:
    return replace(AP_HOST, attachment_point=SampleAttachmentPoint(**values))


def metadata(host: SampleHost, **options: Any) -> dict[str, Any] | None:
    content = members_of(host, **options).get(PATH_METADATA_PATH)
    return None if content is None else json.loads(content)


def with_link(host: SampleHost, interface_id: int, **values: Any) -> SampleHost:
    ends = [replace(one, **values) if one.interface_id == interface_id else one for one in host.link_ends]
    return replace(host, link_ends=tuple(ends))


# --- the limits ---------------------------------------------------------------------------------------------------


def test_each_link_of_a_user_as_has_its_enforced_limit_and_a_blocked_one_none() -> None:
    assert metadata(host_with()) == {"Bandwidth": {"2": {"Inter": 500}, "11": {"Inter": 1000}}}


def test_there_is_no_file_unless_somebody_wants_it() -> None:
    for unwanted in (host_with(publishes_limits=False), AP_HOST):
        assert PATH_METADATA_PATH not in members_of(unwanted)


@table(("to_user", "from_user", "published"), [(500, 300, 300), (300, 500, 300), (800, 0, None)])
def test_of_two_directions_the_lower_one_counts(to_user: int, from_user: int, published: int | None) -> None:
    found = metadata(with_link(host_with(), 2, bandwidth_kbit=to_user, from_user_kbit=from_user))
    assert found is not None
    assert found["Bandwidth"].get("2", {}).get("Inter") == published


def test_a_temporary_limit_changes_nothing() -> None:
    begin = datetime(2026, 11, 21, tzinfo=UTC)
    timed = TimedLimits(begin, begin + timedelta(days=20), (LinkStep(0, Limits.both(7)),))
    members = members_of(with_link(host_with(), 2, timed=(timed,)))
    assert members[PATH_METADATA_PATH] == members_of(host_with())[PATH_METADATA_PATH]
    assert b'"Timed"' in members["etc/scion/link_info.json"]


def test_what_is_only_observed_is_not_published() -> None:
    assert metadata(with_link(host_with(), 2, observe_only=True)) == {"Bandwidth": {"11": {"Inter": 1000}}}
    assert metadata(host_with(observe_only=True)) == {"Bandwidth": {}}


# --- the operator's entries ---------------------------------------------------------------------------------------

ENTRIES = {
    "Latency": {"1": {"Inter": "12ms", "Intra": {"2": "1ms"}}},
    "Bandwidth": {
        "1": {"Inter": 1_000_000},
        "2": {"Inter": 7, "Intra": {"1": 2_000_000}},
        "10": {"Inter": 8},
        "11": {"Inter": 9},
    },
    "Note": "Zürich",
}


def test_without_the_limits_the_file_has_the_operator_s_entries_alone() -> None:
    assert metadata(host_with(publishes_limits=False, metadata_entries=ENTRIES)) == ENTRIES


def test_limits_take_the_place_of_the_operator_s_numbers_of_these_links_and_of_nothing_else() -> None:
    assert metadata(host_with(metadata_entries=ENTRIES)) == {
        **ENTRIES,
        "Bandwidth": {
            "1": {"Inter": 1_000_000},
            "2": {"Inter": 500, "Intra": {"1": 2_000_000}},
            "11": {"Inter": 1000},
        },
    }
    assert ENTRIES["Bandwidth"]["2"]["Inter"] == 7  # type: ignore[index]  # the entries themselves stay as they are


def test_a_blocked_link_keeps_what_the_operator_says_of_its_inside() -> None:
    entries = {"Bandwidth": {"10": {"Inter": 8, "Intra": {"1": 5}}}}
    assert build_path_metadata(entries, {10: 0}) == {"Bandwidth": {"10": {"Intra": {"1": 5}}}}


def test_the_same_values_give_the_same_bytes_in_any_order() -> None:
    backwards = {name: ENTRIES[name] for name in reversed(ENTRIES)}
    first, second = (members_of(host_with(metadata_entries=one)) for one in (ENTRIES, backwards))
    assert first == second


# --- where --------------------------------------------------------------------------------------------------------


def test_only_the_host_with_the_control_service_gets_it_wherever_the_links_end() -> None:
    first = replace(AP_HOST, uid="1" * 32, link_ends=(), attachment_point=None)
    hosts = [first, host_with()]
    assert PATH_METADATA_PATH not in members_of(host_with(), as_hosts=hosts)
    assert metadata(first, as_hosts=hosts) == {"Bandwidth": {"2": {"Inter": 500}, "11": {"Inter": 1000}}}


def test_limits_only_does_not_have_it() -> None:
    host = replace(host_with(), limits_only=True)
    assert snapshot(host).publishes_limits
    assert PATH_METADATA_PATH not in members_of(host)


def test_stock_client_installs_it_and_deletes_it_again(tmp_path: Path) -> None:
    tarball = tar_of(host_with())
    assert complaints(tarball) == []
    machine = StockHost(tmp_path)
    machine.install_tar(tarball)
    assert json.loads(machine.files[PATH_METADATA_PATH])["Bandwidth"]["2"] == {"Inter": 500}
    assert oct((tmp_path / PATH_METADATA_PATH).stat().st_mode & 0o777) == "0o644"
    machine.install_tar(tar_of(replace(host_with(publishes_limits=False), config_version=19)))
    assert PATH_METADATA_PATH not in machine.files
