"""What an operator may write into SCION's path metadata, and how what SCION would not read is refused."""

from __future__ import annotations

import json

import pytest

from bandwidth_config import RuleError
from scionlab.limits.defaults import ap_update
from scionlab.paths.path_metadata import MAX_CHARS, checked_metadata
from scionlab.platform.field_errors import FieldRuleError
from scionlab.testbed.models import AttachmentPoint
from tests.cases import table

pytestmark = pytest.mark.django_db

ALL_KINDS = {
    "Latency": {"1": {"Inter": "12ms", "Intra": {"2": "250us"}}},
    "Bandwidth": {"1": {"Inter": 10_000_000, "Intra": {"2": 18_446_744_073_709_551_615}}},
    "Geo": {"1": {"Latitude": 47.37, "Longitude": -180, "Address": "Zürich"}},
    "LinkType": {"1": "direct", "2": "multihop", "4094": "opennet"},
    "Hops": {"1": {"Intra": {"2": 3}}},
    "Note": "Ring 3",
}


def test_all_kinds_that_scion_knows_are_kept() -> None:
    stored = checked_metadata(json.dumps(ALL_KINDS))
    assert json.loads(stored) == ALL_KINDS
    assert checked_metadata(stored) == stored


@table("text", ["", " \r\n", "{}", " { } "])
def test_nothing_said_is_nothing_stored(text: str) -> None:
    assert checked_metadata(text) == ""


# By the text, what the sentence names: the place, and what may stand there.
REFUSED = {
    '{"Note" "x"}': "not JSON: see line 1, column 9",
    '{"Geo": {"1": {"Latitude": NaN}}}': "has NaN",
    "[1]": "[1] is not an object",
    '{"Note": ' + "[" * 100_000: "too many levels of brackets",
    '{"Note": "a", "Note": "b"}': 'the key "Note" twice',
    '{"Linktype": {"1": "direct"}}': '"Linktype" is none of Latency, Bandwidth, Geo, LinkType, Hops, Note',
    '{"Bandwidth": {"4095": {"Inter": 1}}}': 'Bandwidth: "4095" is not an interface id from 1 to 4094',
    '{"Bandwidth": {"1": {"Intra": {"02": 1}}}}': 'Bandwidth, 1, Intra: "02" is not an interface id from 1 to 4094',
    '{"Bandwidth": {"1": {"Inter": 1.0}}}': "1.0 is not a whole number from 0 to 18446744073709551615",
    '{"Hops": {"1": {"Intra": {"2": 4294967296}}}}': "Hops, 1, Intra, 2: 4294967296 is not a whole number from 0 to",
    '{"Hops": {"1": {"Intra": {"2": true}}}}': "true is not a whole number",
    '{"Hops": {"1": {"Inter": 1}}}': 'Hops, 1: "Inter" is none of Intra',
    '{"Latency": {"1": {"Inter": "1m30s"}}}': '"1m30s" is not a duration up to 4294s in one of h, m, s, ms, us, ns',
    '{"Latency": {"1": {"Inter": "72m"}}}': 'Latency, 1, Inter: "72m" is not a duration',  # beacons cannot carry it
    '{"LinkType": {"1": "wifi"}}': 'LinkType, 1: "wifi" is none of direct, multihop, opennet',
    '{"Geo": {"1": {"Latitude": 91}}}': "Geo, 1, Latitude: 91 is not a number from -90 to 90",
    '{"Geo": {"1": {"Address": 8092}}}': "Geo, 1, Address: 8092 is not a text",
    '{"Note": "\\ud800"}': 'Note: "\\ud800" has half a character',
    json.dumps({"Note": "x" * MAX_CHARS}): "of 10\N{NO-BREAK SPACE}016 characters, as it is stored, is above",
}


@table("text", REFUSED)
def test_what_scion_would_not_read_is_refused(text: str, ap: AttachmentPoint) -> None:
    with pytest.raises(RuleError) as refused:
        checked_metadata(text)
    assert REFUSED[text] in refused.value.message
    values = {"path_metadata": text, "publishes_limits": True}
    with pytest.raises(FieldRuleError) as at_the_field:
        ap_update(attachment_point_id=ap.pk, values=values, actor=None)
    assert (at_the_field.value.field, at_the_field.value.message) == ("path_metadata", refused.value.message)
    assert not AttachmentPoint.objects.get(pk=ap.pk).has_path_metadata
