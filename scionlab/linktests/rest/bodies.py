"""Request bodies of the REST API about tests."""

from __future__ import annotations

from rest_framework import serializers

from contract.link_tests import MAX_WATCH_S, WATCH
from scionlab.web.rest.fields import ParametersField, StrictSerializer, Whole
from station.tools import TOOLS


class LinkTestBody(StrictSerializer):
    """A test of a Link: tool and time."""

    tool = serializers.ChoiceField(
        choices=[WATCH, *TOOLS],
        default=WATCH,
        help_text="\n".join(f"{one.name}: {one.question}" for one in TOOLS.values()),
    )
    duration_s = Whole(min_value=1, max_value=MAX_WATCH_S, required=False, help_text="Of a watch, which needs it.")
    parameters = ParametersField(required=False, help_text="Of the other tools; what is left out has its default.")
    begins_at = serializers.DateTimeField(
        required=False, allow_null=True, default=None, help_text="With an offset from UTC. Default: now."
    )
