"""Both ends of the wire: what `config_tar` packs the agent enforces, what the agent reports the service stores."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ap_agent.agent.archive import DEFAULT_LIMITS, MANIFEST
from ap_agent.agent.bundle import read_bundle
from ap_agent.agent.receipt import Facts, build_receipt
from ap_agent.agent.store import Store
from ap_agent.common.errors import BundleError, TrustError
from ap_agent.common.keys import TrustedKey, parse_keys
from ap_agent.common.problem import Problem
from ap_agent.document.signatures import Keyring, verify
from ap_agent.document.signed_text import Version
from ap_agent.document.state import LimiterState, LinkState, Total
from bandwidth_config import LINK_INFO_PATH, Limits, LinkStep, TimedLimits
from contract.link_rules import MAX_STEPS, MAX_STEPS_PER_HOST
from scionlab.delivery.download import build_user_download
from scionlab.enforcement.receipt_format import parse_receipt
from scionlab.testbed.models.host import trace_of
from tests.agent_limiter import direction, limiter_state
from tests.cases import table
from tests.contract.config_samples import (
    AP_HOST,
    FULL_AP_HOST,
    HOSTS,
    KEYS,
    TESTED_AP_HOST,
    TESTS,
    USER_HOST,
    members_of,
    tar_of,
)
from tests.contract.stock_client import complaints

SAMPLES = Path(__file__).with_name("samples")
NOW = datetime(2026, 11, 21, 6, 0, 0, 123456, tzinfo=UTC)


def test_agent_reads_tests_of_each_kind() -> None:
    sample = (SAMPLES / "schema1-ap-tests.tar.gz").read_bytes()
    for data in (sample, tar_of(TESTED_AP_HOST)):
        bundle = read_bundle(data, host_id=AP_HOST.uid)
        assert bundle.links[2].tests == TESTS
        assert [number for number, link in bundle.links.items() if link.tests] == [2]


@table("data", [tar_of(USER_HOST), build_user_download(USER_HOST, members_of(USER_HOST))])
def test_tarball_of_a_user_as_is_no_order_to_remove_limits(data: bytes) -> None:
    with pytest.raises(BundleError) as refused:
        read_bundle(data, host_id=USER_HOST.uid)

    assert refused.value.code in {"no_link_info", "member_name"}  # the download has a README at its root


def test_every_old_sample_is_still_read(tmp_path: Path) -> None:
    """Samples are added when the contract changes and never altered: agents in the field are older than the service."""
    samples = sorted(SAMPLES.glob("*.tar.gz"))
    assert samples

    for sample in samples:
        assert complaints(sample.read_bytes()) == []
        bundle = read_bundle(sample.read_bytes(), host_id=None)
        assert bundle.links
        store = Store(tmp_path / sample.name)
        store.save(bundle)
        assert store.load(host_id=bundle.host_id) == bundle


def test_signed_sample_is_believed_with_the_key_that_signed_it_and_with_no_other() -> None:
    """The bytes are from the day of the contract: whoever changes what is signed, or how, notices it here."""
    data = (SAMPLES / "schema1-ap-complete.tar.gz").read_bytes()
    key = TrustedKey(base64.b64decode("iojj3XQJ8ZX9UtstPLpdcspnCb8dlBIb83SIAbQPb1w="), NOW + timedelta(days=1))
    other = TrustedKey(bytes(32), NOW + timedelta(days=1))

    bundle = read_bundle(data, host_id=AP_HOST.uid, verify=partial(verify, keyring=Keyring.of([key]), now=NOW))
    assert bundle.signed is not None
    assert (bundle.order, bundle.host_secret) == (Version(1, 18, 7), AP_HOST.secret)
    assert set(bundle.signed.sha256) == set(bundle.members) - {MANIFEST}
    with pytest.raises(TrustError) as refused:
        read_bundle(data, host_id=AP_HOST.uid, verify=partial(verify, keyring=Keyring.of([other]), now=NOW))
    assert refused.value.code == "unknown_key"


@table("name", [name for name, host in HOSTS.items() if host.attachment_point])
def test_tarball_of_today_is_believed(name: str) -> None:
    host, keyring = HOSTS[name], Keyring.of(parse_keys(KEYS.entries))

    bundle = read_bundle(tar_of(host), host_id=host.uid, verify=partial(verify, keyring=keyring, now=NOW))
    assert bundle.order == Version(1, host.config_version, host.limits_version)
    assert (bundle.version, bundle.limits_version) == (f"1.{host.config_version}", host.limits_version)
    assert list(bundle.links) == [end.interface_id for end in host.link_ends]


# --- the way back -----------------------------------------------------------------------------------------------------

TO_USER = direction(500, 1200, packets=9)
FROM_USER = direction(500, 800, packets=7, refused=3, dropped=1, backlog=60)
LINKS = {
    2: LinkState(2, Limits.both(500), "enforced", None, TO_USER, FROM_USER),
    10: LinkState(10, Limits.both(0), "observed", None, TO_USER._replace(rate_kbit=0), FROM_USER._replace(rate_kbit=0)),
    11: LinkState(11, Limits.both(1000), "error", "The kernel has no class for link 11.", None, FROM_USER),
}
PROBLEM = Problem("hook_obstructed", "eth1", "eth1 has an ingress qdisc that is not ours.")


def state(**changes: Any) -> LimiterState:
    total = Total(5000, 5000, None)
    given = {"order": Version(1, 18, 7), "limits_digest": "d" * 64, "observed_at": NOW, "total": total, **changes}
    return limiter_state(LINKS, **given)


def sent(found: LimiterState | None, *problems: Problem) -> bytes:
    receipt = build_receipt(Facts(found, problems, None, -20, NOW), run="a" * 32, number=1, writes=4)
    return json.dumps(receipt).encode()


def test_receipt_is_exactly_the_one_of_the_contract() -> None:
    document = json.loads(sent(state(is_observe_only=True), PROBLEM))

    assert document["schema"] == 1
    assert (document["devices"], document["observe_only"]) == (["eth0"], True)
    assert document["total"] == {"wanted_kbit": 5000, "to_user_kbit": 5000, "from_user_kbit": None}
    assert document["observed_at"] == "2026-11-21T06:00:00.123456Z"
    counted = {"bytes": 800, "packets": 7, "drops": 4, "backlog_bytes": 60, "refused": 3, "dropped": 1}
    assert document["links"]["2"]["from_user"] == {"dev": "slbw1", "rate_kbit": 500, **counted}
    example = json.loads(_example())
    assert set(document) == set(example) - {"evidence"}  # evidence is sent only when it is asked for
    assert set(document["links"]["2"]) == set(example["links"]["1"])
    assert set(document["links"]["2"]["to_user"]) == set(example["links"]["1"]["to_user"])
    assert set(document["problems"][0]) == set(example["problems"][0])


def _example() -> str:
    text = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
    section = text.partition("## Enforcement receipt")[2]
    return section.partition("```json\n")[2].partition("```")[0]


def test_service_understands_the_receipt() -> None:
    receipt = parse_receipt(sent(state(), PROBLEM))

    assert (receipt.version, receipt.limits_version, receipt.observed_at) == ((1, 18), 7, NOW)
    assert {number: link.state for number, link in receipt.links.items()} == {
        2: "enforced",
        10: "observed",
        11: "error",
    }
    assert receipt.links[11].to_user is None
    assert receipt.links[2].from_user is not None
    assert receipt.links[2].from_user.drops == 4
    assert receipt.problems[0].code == "hook_obstructed"


def test_service_accepts_a_receipt_with_everything_too_long() -> None:
    long = [Problem("verify_failed", "x" * 5000, "\u00e4\ud800\0" * 50_000)] * 3000
    links = {1: LinkState(1, Limits.both(500), "error", "y" * 50_000, None, None)}

    receipt = parse_receipt(sent(replace(state(), links=links), Problem("x", "a\0", "b\ud800"), *long))

    assert len(receipt.problems) == 1000
    assert (receipt.problems[0].subject, receipt.problems[0].message) == ("a?", "b?")
    assert str(receipt.links[1].problem).endswith("...")


# --- as many steps as there may be ------------------------------------------------------------------------------------


def test_agent_takes_a_full_host_with_as_many_steps_as_it_may_have() -> None:
    """All alike, which packs best: the reader's limits of what a byte may become hold too."""
    begins_at = datetime(2026, 11, 21, 23, 0, tzinfo=UTC)
    steps = tuple(LinkStep(12_345 * n, Limits(99_999_999, 99_999_998)) for n in range(MAX_STEPS))
    timed = TimedLimits(begins_at, begins_at + timedelta(days=30), steps)
    count = MAX_STEPS_PER_HOST // MAX_STEPS
    ends = FULL_AP_HOST.link_ends
    crowded = tuple(replace(one, timed=(timed,), maximum_kbit=10**8) for one in ends[:count])
    tarball = tar_of(replace(FULL_AP_HOST, link_ends=(*crowded, *ends[count:])))

    bundle = read_bundle(tarball, host_id=FULL_AP_HOST.uid)

    assert bundle.links[count].timed == (timed,)
    assert sum(len(one.steps) for link in bundle.links.values() for one in link.timed) == MAX_STEPS_PER_HOST
    size = len(bundle.members[LINK_INFO_PATH])
    print(f"  measured: link_info={size} B, packed={len(tarball)} B, steps={MAX_STEPS_PER_HOST}")
    assert size < DEFAULT_LIMITS.member_bytes / 2
    assert len(tarball) < DEFAULT_LIMITS.compressed_bytes / 2
    assert size < DEFAULT_LIMITS.ratio * len(tarball) / 2


def test_service_agent_and_limiter_call_a_version_by_the_same_name() -> None:
    uid = "1f2e3d4c" + "0" * 24
    assert trace_of(uid, 3, 17) == Version(9, 3, 17).trace(uid) == "1f2e3d4c.3.17"
