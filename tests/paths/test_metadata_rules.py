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


REFUSED = {
    "no JSON": (
        '{"Note" "x"}',
        "Path metadata is not JSON: see line 1, column 9. Correct it there.",
    ),
    "cut off": (
        '{"Note": ',
        "Path metadata is not JSON: see line 1, column 10. Correct it there.",
    ),
    "NaN": ('{"Geo": {"1": {"Latitude": NaN}}}', "Path metadata has NaN, which is not JSON. Correct it there."),
    "no object": ("[1]", 'Path metadata: [1] is not an object. Write {"Latency": ...}.'),
    "nested deeply": (
        '{"Note": ' + "[" * 100_000,
        "Path metadata has too many levels of brackets. Correct it there.",
    ),
    "twice": (
        '{"Note": "a", "Note": "b"}',
        'Path metadata has the key "Note" twice in one object. Correct it there.',
    ),
    "as the manual spells it in one place": (
        '{"Linktype": {"1": "direct"}}',
        'Path metadata: "Linktype" is none of Latency, Bandwidth, Geo, LinkType, Hops, Note. Choose one of these, in '
        "this spelling.",
    ),
    "an interface that cannot be": (
        '{"Bandwidth": {"4095": {"Inter": 1}}}',
        'Path metadata, Bandwidth: "4095" is not an interface id from 1 to 4094. Write it without leading zeros.',
    ),
    "an interface with zeros": (
        '{"Bandwidth": {"1": {"Intra": {"02": 1}}}}',
        'Path metadata, Bandwidth, 1, Intra: "02" is not an interface id from 1 to 4094. Write it without leading '
        "zeros.",
    ),
    "a bandwidth in quotes": (
        '{"Bandwidth": {"1": {"Inter": "500"}}}',
        'Path metadata, Bandwidth, 1, Inter: "500" is not a whole number from 0 to 18446744073709551615. Write one, '
        "without quotes.",
    ),
    "a bandwidth with a fraction": (
        '{"Bandwidth": {"1": {"Inter": 1.0}}}',
        "Path metadata, Bandwidth, 1, Inter: 1.0 is not a whole number from 0 to 18446744073709551615. Write one, "
        "without quotes.",
    ),
    "too many hops": (
        '{"Hops": {"1": {"Intra": {"2": 4294967296}}}}',
        "Path metadata, Hops, 1, Intra, 2: 4294967296 is not a whole number from 0 to 4294967295. Write one, without "
        "quotes.",
    ),
    "hops that are true": (
        '{"Hops": {"1": {"Intra": {"2": true}}}}',
        "Path metadata, Hops, 1, Intra, 2: true is not a whole number from 0 to 4294967295. Write one, without quotes.",
    ),
    "hops between ASes": (
        '{"Hops": {"1": {"Inter": 1}}}',
        'Path metadata, Hops, 1: "Inter" is none of Intra. Choose one of these, in this spelling.',
    ),
    "a duration of two units": (
        '{"Latency": {"1": {"Inter": "1m30s"}}}',
        'Path metadata, Latency, 1, Inter: "1m30s" is not a duration up to 4294s in one of h, m, s, ms, us, ns. '
        'Write one like "12ms".',
    ),
    "a duration that beacons cannot carry": (
        '{"Latency": {"1": {"Inter": "72m"}}}',
        'Path metadata, Latency, 1, Inter: "72m" is not a duration up to 4294s in one of h, m, s, ms, us, ns. '
        'Write one like "12ms".',
    ),
    "another link type": (
        '{"LinkType": {"1": "wifi"}}',
        'Path metadata, LinkType, 1: "wifi" is none of direct, multihop, opennet. Choose one of these.',
    ),
    "a latitude beyond the pole": (
        '{"Geo": {"1": {"Latitude": 91}}}',
        "Path metadata, Geo, 1, Latitude: 91 is not a number from -90 to 90. Write degrees, without quotes.",
    ),
    "an address that is a number": (
        '{"Geo": {"1": {"Address": 8092}}}',
        "Path metadata, Geo, 1, Address: 8092 is not a text. Write it in quotes.",
    ),
    "half a character": (
        '{"Note": "\\ud800"}',
        'Path metadata, Note: "\\ud800" has half a character (a lone surrogate). Write the character itself.',
    ),
    "too long": (
        json.dumps({"Note": "x" * MAX_CHARS}),
        "Path metadata of 10\N{NO-BREAK SPACE}016 characters, as it is stored, is above 10\N{NO-BREAK SPACE}000. Leave "
        "out interfaces that do not need it.",
    ),
}


@table("name", REFUSED)
def test_what_scion_would_not_read_is_refused(name: str, ap: AttachmentPoint) -> None:
    text, words = REFUSED[name]
    with pytest.raises(RuleError) as refused:
        checked_metadata(text)
    assert refused.value.message == words
    values = {"path_metadata": text, "publishes_limits": True}
    with pytest.raises(FieldRuleError) as at_the_field:
        ap_update(attachment_point_id=ap.pk, values=values, actor=None)
    assert (at_the_field.value.field, at_the_field.value.message) == ("path_metadata", words)
    assert not AttachmentPoint.objects.get(pk=ap.pk).has_path_metadata
