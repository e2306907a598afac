"""Ids, ports and quotas when two people save at once: the race is shown without the lock, then prevented by it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from scionlab.accounts.models import User
from scionlab.platform.field_errors import FieldRuleError
from scionlab.testbed.models import VPN, AttachmentPoint, Host, Interface, UserAS, VPNClient, numbers
from scionlab.testbed.selectors import links_of
from scionlab.user_ases import attachment_rules, user_as
from scionlab.user_ases.attachments import AttachmentSpec
from scionlab.user_ases.user_as import user_as_delete, user_as_update
from tests.concurrency.conftest import AtOnce, MeetIn, failures
from tests.factories import attach, spec

# --- AS ids ----------------------------------------------------------------------------------------------------


def test_two_creates_at_two_attachment_points_get_two_as_ids(
    owner: User, teammate: User, ap: AttachmentPoint, ap_b: AttachmentPoint, at_once: AtOnce, meet_in: MeetIn
) -> None:
    other = spec(ap_b, public_ip="198.51.100.8")
    meeting = meet_in(numbers, "free_user_as_id")
    made = at_once(partial(attach, owner, spec(ap)), partial(attach, teammate, other))
    assert failures(made) == []
    assert not meeting.met, "the second waits for the lock before it looks"
    assert sorted(one.isd_as for one in made) == ["17-ffaa:1:1", "17-ffaa:1:2"]


# --- interface ids and ports of one attachment point --------------------------------------------------------------


def _attach_anew(one: UserAS, *attachments: AttachmentSpec) -> UserAS:
    return user_as_update(
        user_as_id=one.pk, actor=None, label="", installation_type="dedicated", attachments=list(attachments)
    )


def _add(one: UserAS, ap: AttachmentPoint) -> UserAS:
    """One attachment more for an AS that exists: no AS id is involved, so only the attachment point's row guards."""
    (link,) = links_of(one)
    address = str(link.interface_b.public_ip)
    kept = spec(ap, public_ip=address, public_port=50_000, bandwidth_kbit=link.bandwidth_kbit, link_id=link.pk)
    return _attach_anew(one, kept, spec(ap, public_ip=address, public_port=50_001))


@pytest.fixture
def two_ases(owner: User, teammate: User, ap: AttachmentPoint) -> list[UserAS]:
    return [attach(owner, spec(ap)), attach(teammate, spec(ap, public_ip="198.51.100.8"))]


# What is scarce, the error that names it, and how the last one of it is made to be at hand.
LAST = {
    "interface id": ("interface_ids_exhausted", "free_interface_id", ("MAX_INTERFACE_ID", 3)),
    "port": ("ports_exhausted", "free_port", ("MAX_PORT", 50_002)),
    "VPN address": ("vpn_full", "free_vpn_address", None),
}


def _take_last(what: str, ap: AttachmentPoint, monkeypatch: pytest.MonkeyPatch) -> Callable[[UserAS], UserAS]:
    bound = LAST[what][2]
    if bound is not None:
        monkeypatch.setattr(numbers, *bound)
        return lambda one: _add(one, ap)
    VPN.objects.filter(host=ap.host).update(subnet="10.10.1.0/30")  # the server and one client
    return lambda one: _attach_anew(one, spec(ap, use_vpn=True, link_id=links_of(one)[0].pk))


@pytest.mark.parametrize("what", LAST)
def test_the_last_one_is_given_once_and_the_other_is_told_that_there_is_none(
    what: str,
    two_ases: list[UserAS],
    ap: AttachmentPoint,
    at_once: AtOnce,
    meet_in: MeetIn,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    take, before = _take_last(what, ap, monkeypatch), (Interface.objects.count(), VPNClient.objects.count())
    meeting = meet_in(numbers, LAST[what][1])
    results = at_once(*(partial(take, one) for one in two_ases))
    (refused,) = failures(results)
    assert isinstance(refused, FieldRuleError)
    assert refused.code == LAST[what][0]
    assert not meeting.met
    grown = Interface.objects.count() - before[0], VPNClient.objects.count() - before[1]
    assert grown == ((0, 1) if what == "VPN address" else (2, 0)), "the one has it, the other nothing half"


def test_a_forwarded_port_is_given_once_at_two_attachment_points(
    owner: User, teammate: User, ap: AttachmentPoint, ap_b: AttachmentPoint, at_once: AtOnce, meet_in: MeetIn
) -> None:
    """ASes of two people that exist move behind one NAT, each at an attachment point of its own."""
    moves = [
        partial(
            _attach_anew,
            attach(person, spec(at, public_ip=f"198.51.100.{number}")),
            spec(at, public_ip="198.51.100.77", public_port=50_077),
        )
        for number, person, at in ((10, owner, ap), (11, teammate, ap_b))
    ]
    meeting = meet_in(attachment_rules, "_taken")
    (refused,) = failures(at_once(*moves))
    assert isinstance(refused, FieldRuleError), repr(refused)
    assert refused.code == "endpoint_taken"
    assert not meeting.met
    assert Interface.objects.filter(public_ip="198.51.100.77", public_port=50_077).count() == 1


# --- quota -------------------------------------------------------------------------------------------------------


def test_the_quota_holds_when_two_creates_race(
    owner: User, ap: AttachmentPoint, ap_b: AttachmentPoint, at_once: AtOnce, meet_in: MeetIn
) -> None:
    User.objects.filter(pk=owner.pk).update(as_quota=1)
    meet_in(user_as, "check_quota")
    results = at_once(partial(attach, owner, spec(ap)), partial(attach, owner, spec(ap_b, public_port=50001)))
    (refused,) = failures(results)
    assert isinstance(refused, FieldRuleError)
    assert refused.code == "quota_exceeded"
    assert UserAS.objects.count() == 1


# --- one AS in two windows ------------------------------------------------------------------------------------------


def test_an_as_is_not_deleted_under_somebody_who_is_attaching_to_it(
    owner: User, teammate: User, ap: AttachmentPoint, at_once: AtOnce, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = attach(owner, spec(ap))
    host = provider.hosts.get()
    Host.objects.filter(pk=host.pk).update(public_ipv4="198.51.100.7")
    own = AttachmentPoint.objects.create(AS=provider, host=host, maximum_kbit=1000)
    attaching, original = threading.Event(), attachment_rules.check_attachments

    def checked_and_slow(*args: Any, **kwargs: Any) -> Any:
        answer = original(*args, **kwargs)
        attaching.set()
        time.sleep(0.4)  # the deletion begins meanwhile
        return answer

    monkeypatch.setattr(user_as, "check_attachments", checked_and_slow)

    def delete() -> None:
        assert attaching.wait(timeout=30)
        user_as_delete(user_as_id=provider.pk, actor=owner)

    made, refused = at_once(partial(attach, teammate, spec(own, public_ip="198.51.100.9")), delete)
    assert isinstance(made, UserAS)
    assert isinstance(refused, FieldRuleError), repr(refused)
    assert refused.code == "as_has_customers"
    assert len(links_of(made)) == 1
