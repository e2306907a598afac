"""Limits along SCION paths. A read-only POST, because the output of `scion showpaths` does not fit into a URL."""

from __future__ import annotations

from typing import Any, ClassVar, get_args

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from scionlab.enforcement.directions import DIRECTIONS
from scionlab.enforcement.words import State
from scionlab.paths.path_view import Kind, path_views
from scionlab.paths.rest.documents import MeasuredDocument
from scionlab.paths.scion_path import MAX_BYTES, MAX_HOPS, MAX_PATHS
from scionlab.platform.clock import database_now
from scionlab.user_ases.rest.documents import UsedDocument
from scionlab.web.rest.base import ApiView
from scionlab.web.rest.fields import StrictSerializer, Text
from scionlab.web.rest.schema import describe


class PathsBody(StrictSerializer):
    """Output of SCION's programs, as text."""

    paths = Text(
        trim_whitespace=False,
        help_text="What `scion showpaths` prints, as JSON or not, or sequences, one path a line. At most "
        f"{MAX_BYTES} bytes, {MAX_PATHS} paths and {MAX_HOPS} hops of each.",
    )
    traceroute = Text(
        default="",
        allow_blank=True,
        trim_whitespace=False,
        help_text="What `scion traceroute` prints for one of the paths.",
    )


class PathLinkDocument(MeasuredDocument):
    """One link of a path, in the direction of travel."""

    from_isd_as = serializers.CharField(source="ends.leaves.isd_as")
    from_interface_id = serializers.IntegerField(source="ends.leaves.interface_id")
    to_isd_as = serializers.CharField(source="ends.enters.isd_as")
    to_interface_id = serializers.IntegerField(source="ends.enters.interface_id")
    kind = serializers.ChoiceField(
        choices=get_args(Kind),
        help_text="shown: a Link that you may see; published, withheld: another user's, with its published limit or "
        "without; not_limited; registered_otherwise: an interface belongs to another link; unknown: not registered.",
    )
    link_id = serializers.IntegerField(source="status.link.pk", allow_null=True, default=None)
    direction = serializers.ChoiceField(choices=DIRECTIONS, allow_null=True, help_text="Of travel; null: not shown.")
    limit_kbit = serializers.IntegerField(
        allow_null=True, help_text="The limit to enforce now in this direction; of `published`, of the lower one."
    )
    enforced_kbit = serializers.IntegerField(allow_null=True, help_text="In the kernel; null: not known.")
    state = serializers.ChoiceField(choices=get_args(State), source="status.state", allow_null=True, default=None)
    used = UsedDocument(allow_null=True, help_text="In this direction in the last hour; null: not known.")
    from_rtt_ms = serializers.FloatField(source="rtts_ms.leaves", allow_null=True, help_text="Shortest round trip.")
    to_rtt_ms = serializers.FloatField(source="rtts_ms.enters", allow_null=True)
    is_narrowest = serializers.BooleanField(help_text="Its limit is the lowest one known on this path.")
    text = serializers.CharField(help_text="For people.")


class PathDocument(serializers.Serializer[Any]):
    """A path as it was sent."""

    hops = serializers.ListField(child=serializers.CharField(), help_text="ISD-ASes in the direction of travel.")
    narrowest_kbit = serializers.IntegerField(allow_null=True, help_text="The lowest limit known; null: none is known.")
    text = serializers.CharField(help_text="The narrowest known limit and what is not known, for people.")
    links = PathLinkDocument(many=True)


class PathsDocument(serializers.Serializer[Any]):
    """In the order in which they were sent."""

    paths = PathDocument(many=True)


class PathsView(ApiView):
    post_only_reads: ClassVar = True

    @describe(
        "paths",
        "Limits along SCION paths",
        "Nothing is stored, and a read-only token suffices. Figures are of Links that you may see; another user's "
        "have the published limit, if there is one.",
        body=PathsBody,
        answer=PathsDocument,
        examples={"A sequence": {"paths": "17-ffaa:1:1#0,1 17-ffaa:0:1107#1,0"}},
    )
    def post(self, request: Request) -> Response:  # noqa: ARG002  the framework's signature
        sent = self.sent(PathsBody).validated_data
        found = path_views(sent["paths"], sent["traceroute"], reader=self.person, now=database_now())
        return Response(PathsDocument({"paths": found}).data)
