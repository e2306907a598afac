"""Defaults: what lowering and raising them does to Links, and the audit of every number that changed."""

from __future__ import annotations

import json

import pytest

from bandwidth_config import generate_link_info
from scionlab.accounts.models import User
from scionlab.limits.defaults import ap_default_set, fan_out, site_default_set
from scionlab.limits.update import link_set_bandwidth, link_update
from scionlab.platform.field_errors import FieldRuleError
from scionlab.testbed.models import AttachmentPoint, BandwidthChange, Host, Link, UserAS
from scionlab.testbed.selectors import links_of
from scionlab.user_ases.user_as import user_as_delete
from tests.cases import table
from tests.factories import AttachmentPointFactory, attach, save, spec
from tests.support.counters import Counters

NOTHING: dict[Host, tuple[int, int]] = {}


@pytest.fixture
def three(owner: User, ap: AttachmentPoint) -> list[Link]:
    """Links at `ap` with 1000, 500 and 0 kbit/s."""
    wanted = [spec(ap, public_port=50_000 + n, bandwidth_kbit=kbit) for n, kbit in enumerate((1000, 500, 0))]
    return links_of(attach(owner, *wanted))


def enforced(ap: AttachmentPoint) -> list[int]:
    """What the attachment point is told, as it is written into link_info.json."""
    document = generate_link_info(Host.objects.get(pk=ap.host.pk))
    return [entry["Bandwidth"] for entry in document.values()]


def test_lowering_clamps_and_keeps_and_raising_gives_back(three: list[Link], ap: AttachmentPoint, staff: User) -> None:
    assert enforced(ap) == [1000, 500, 0]
    for default, expected, hosts in (
        (100, [100, 100, 0], [ap.host.pk]),
        (0, [0, 0, 0], [ap.host.pk]),
        (999, [999, 500, 0], [ap.host.pk]),
        (1000, [1000, 500, 0], [ap.host.pk]),
        (50_000, [1000, 500, 0], []),  # nobody was clamped: nobody gets more than they asked for
    ):
        ap_default_set(attachment_point_id=ap.pk, default_bandwidth_kbit=default, actor=staff)
        assert fan_out() == hosts
        assert enforced(ap) == expected
        kept = Link.objects.order_by("pk").values_list("bandwidth_kbit", flat=True)
        assert list(kept) == [1000, 500, 0], "the choice itself is kept"


def test_nothing_is_clamped_before_it_is_carried_out(three: list[Link], ap: AttachmentPoint, staff: User) -> None:
    """A configuration is a function of its versions: the clamp and L come in one transaction."""
    before = json.dumps(generate_link_info(ap.host))
    counters = Counters()
    ap_default_set(attachment_point_id=ap.pk, default_bandwidth_kbit=100, actor=staff)
    assert json.dumps(generate_link_info(Host.objects.get(pk=ap.host.pk))) == before
    assert counters.risen() == NOTHING
    fan_out()
    assert enforced(ap) == [100, 100, 0]
    assert counters.risen() == {ap.host: (0, 1)}


def test_the_site_default_counts_where_there_is_no_other(
    three: list[Link], ap: AttachmentPoint, ap_b: AttachmentPoint, stranger: User, staff: User
) -> None:
    ap_default_set(attachment_point_id=ap_b.pk, default_bandwidth_kbit=800, actor=staff)
    fan_out()
    site_default_set(default_bandwidth_kbit=300, actor=staff)
    assert fan_out() == [ap.host.pk]
    assert (enforced(ap), enforced(ap_b)) == ([300, 300, 0], [800])
    ap_default_set(attachment_point_id=ap_b.pk, default_bandwidth_kbit=None, actor=staff)
    assert fan_out() == [ap_b.host.pk]
    assert enforced(ap_b) == [300]


def test_a_number_is_judged_by_the_default_in_force_and_not_by_the_one_carried_out(
    three: list[Link], ap: AttachmentPoint, staff: User
) -> None:
    """The task may be late: the form said 5000, so 5000 is accepted, and in force at once."""
    ap_default_set(attachment_point_id=ap.pk, default_bandwidth_kbit=5000, actor=staff)
    assert link_set_bandwidth(link_id=three[1].pk, bandwidth_kbit=5000, actor=None).enforced_kbit == 5000
    ap_default_set(attachment_point_id=ap.pk, default_bandwidth_kbit=200, actor=staff)
    with pytest.raises(FieldRuleError, match="maximum of 200"):
        link_set_bandwidth(link_id=three[1].pk, bandwidth_kbit=201, actor=None)
    made = attach(staff, spec(ap, public_ip="198.51.100.9"))
    assert [(link.bandwidth_kbit, link.enforced_kbit) for link in links_of(made)] == [(200, 200)]


def test_an_attachment_point_made_by_hand_gets_its_maximum(db: None, owner: User) -> None:
    """Rows that nobody carried out begin with 0, which would block: the first attachment settles it."""
    ap = AttachmentPointFactory(maximum_kbit=0)
    made = attach(owner, spec(ap))
    assert [(link.bandwidth_kbit, link.enforced_kbit) for link in links_of(made)] == [(1000, 1000)]


@table(("kbit", "code"), [(-1, "bandwidth_negative"), (100_000_001, "bandwidth_too_high")])
def test_defaults_have_bounds(kbit: int, code: str, ap: AttachmentPoint, staff: User) -> None:
    for refuse in (
        lambda: site_default_set(default_bandwidth_kbit=kbit, actor=staff),
        lambda: ap_default_set(attachment_point_id=ap.pk, default_bandwidth_kbit=kbit, actor=staff),
    ):
        with pytest.raises(FieldRuleError) as refused:
            refuse()
        assert (refused.value.code, refused.value.field) == (code, "default_bandwidth_kbit")
    assert not BandwidthChange.objects.exists()


# --- the audit ------------------------------------------------------------------------------------------------------

Row = tuple[str, str, str | None, int | None, int | None, str]


def audit() -> list[Row]:
    rows = BandwidthChange.objects.order_by("pk").values_list(
        "kind", "subject", "actor__email", "old_kbit", "new_kbit", "reason"
    )
    return [tuple(row) for row in rows]  # type: ignore[misc]


WHO = "owner@example.org"
LINK_1 = "17-ffaa:0:1107#1 \N{RIGHTWARDS ARROW} 17-ffaa:1:1#1"
LINK_2 = "17-ffaa:0:1107#2 \N{RIGHTWARDS ARROW} 17-ffaa:1:1#2"


def test_the_life_of_a_link_is_in_the_audit(owner: User, staff: User, ap: AttachmentPoint, user_as: UserAS) -> None:
    (link,) = links_of(user_as)
    assert audit() == [("link", LINK_1, WHO, None, 1000, "")]
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=0, actor=staff, reason="flooding")
    link_set_bandwidth(link_id=link.pk, bandwidth_kbit=0, actor=staff, reason="again")
    link_update(link_id=link.pk, actor=owner, active=False)
    kept = spec(ap, bandwidth_kbit=400, link_id=link.pk)
    save(user_as, kept, spec(ap, public_port=50001, bandwidth_kbit=7), actor=owner)
    save(user_as, kept, actor=owner)
    user_as_delete(user_as_id=user_as.pk, actor=owner)
    assert audit()[1:] == [
        ("link", LINK_1, "staff@example.org", 1000, 0, "flooding"),
        ("link_active", LINK_1, WHO, None, None, ""),
        ("link", LINK_1, WHO, 0, 400, ""),
        ("link_active", LINK_1, WHO, None, None, ""),
        ("link", LINK_2, WHO, None, 7, ""),
        ("link", LINK_2, WHO, 7, None, ""),
        ("link", LINK_1, WHO, 400, None, ""),
    ]
    assert set(BandwidthChange.objects.values_list("link", "attachment_point")) == {(None, ap.pk)}


def test_defaults_are_in_the_audit(ap: AttachmentPoint, staff: User) -> None:
    who = "staff@example.org"
    site_default_set(default_bandwidth_kbit=2000, actor=staff, reason="new line")
    site_default_set(default_bandwidth_kbit=2000, actor=staff)
    ap_default_set(attachment_point_id=ap.pk, default_bandwidth_kbit=0, actor=staff)
    ap_default_set(attachment_point_id=ap.pk, default_bandwidth_kbit=None, actor=staff, reason="x" * 300)
    fan_out()
    assert audit() == [
        ("site_default", "site default", who, 1000, 2000, "new line"),
        ("ap_default", "default of 17-ffaa:0:1107", who, None, 0, ""),
        ("ap_default", "default of 17-ffaa:0:1107", who, 0, None, "x" * 200),
    ]


def test_audit_rows_are_never_altered(link: Link) -> None:
    row = BandwidthChange.objects.get()
    row.new_kbit = 5
    with pytest.raises(ValueError, match="cannot be changed"):
        row.save()
    assert BandwidthChange.objects.get().new_kbit == 1000
