"""Request bodies of the REST API. The services check all rules."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from bandwidth_config import Limits, RuleError
from contract.link_rules import MAX_PORT, MAX_TIMED_S, MIN_PORT
from scionlab.limits.profiles import Profile, constant, outage, square_wave, stair
from scionlab.platform.clock import database_now
from scionlab.testbed.models import Host, UserAS
from scionlab.user_ases.attachments import DEFAULT_PORT, MAX_ATTACHMENTS, VM_ADDRESS, AttachmentSpec
from scionlab.web.rest.fields import AnyBandwidthField, BandwidthField, Flag, LimitsField, StrictSerializer, Text, Whole

_ONE_WAY = {"to_user_kbit", "from_user_kbit"}


class LinkBody(StrictSerializer):
    """Changes of a Link; omitted fields are kept."""

    bandwidth_kbit = BandwidthField(required=False, help_text="Both directions. Not together with the next two.")
    to_user_kbit = BandwidthField(required=False, help_text="To the user AS; the other direction keeps its value.")
    from_user_kbit = BandwidthField(
        required=False,
        allow_null=True,
        help_text="From the user AS; the other direction keeps its value. null: the same as to it.",
    )
    active = Flag(required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if not attrs:
            raise RuleError(
                "nothing_to_change",
                'No change requested. Send "bandwidth_kbit", or "to_user_kbit" and "from_user_kbit", or "active".',
            )
        if "bandwidth_kbit" in attrs and _ONE_WAY & set(attrs):
            text = "bandwidth_kbit sets both directions. Send either it or to_user_kbit and from_user_kbit."
            raise serializers.ValidationError({"bandwidth_kbit": [serializers.ErrorDetail(text, "bandwidth_twice")]})
        return attrs

    def limits(self, now: Limits) -> Limits | None:
        """The requested limits, given those of `now`; None keeps the bandwidth."""
        values = self.validated_data
        if "bandwidth_kbit" in values:
            return Limits.both(values["bandwidth_kbit"])
        if not _ONE_WAY & set(values):
            return None
        return Limits.of_columns(**{name: values.get(name, getattr(now, name)) for name in _ONE_WAY})


class AttachmentBody(StrictSerializer):
    """One attachment of a user AS, as in the web form."""

    attachment_point_id = Whole(min_value=1)  # larger than any key: unknown, like others
    link_id = Whole(
        required=False, allow_null=True, help_text="The id of the Link of an existing attachment to keep or edit."
    )
    use_vpn = Flag(default=False)
    public_ip = Text(required=False, allow_null=True, max_length=60)
    public_port = Whole(default=DEFAULT_PORT, help_text=f"UDP, {MIN_PORT} to {MAX_PORT}.")
    bandwidth_kbit = BandwidthField(
        required=False,
        allow_null=True,
        help_text="To the user AS, and from it if from_user_kbit is null. null: the current default.",
    )
    from_user_kbit = BandwidthField(
        required=False, allow_null=True, help_text="From the user AS. null: the same as to it."
    )
    bind_ip = Text(
        required=False,
        allow_null=True,
        max_length=60,
        help_text=f"null: the public address; in a virtual machine {VM_ADDRESS} instead of an IPv4 address.",
    )
    bind_port = Whole(required=False, allow_null=True)
    active = Flag(default=True)


class UserASBody(StrictSerializer):
    """A complete user AS."""

    label = Text(allow_blank=True, default="", max_length=100)  # type: ignore[assignment]  # its name on the wire
    installation_type = serializers.ChoiceField(
        choices=UserAS.Installation.choices, default=UserAS.Installation.VM.value
    )
    scion_packages = serializers.ChoiceField(
        choices=Host.ScionPackages.choices,
        required=False,
        help_text="Installed on its host. Left out: they stay as they are, those of a new AS are SCIONLab's.",
    )
    attachments = AttachmentBody(many=True, help_text=f"1 to {MAX_ATTACHMENTS}.")

    def values(self) -> dict[str, Any]:
        """Arguments of `user_as_create` and `user_as_update`."""
        attachments = [AttachmentSpec(**one) for one in self.validated_data["attachments"]]
        return {**self.validated_data, "attachments": attachments}


class UserASChangeBody(StrictSerializer):
    """Changes of a user AS; omitted fields are kept."""

    label = Text(required=False, allow_blank=True, max_length=100)  # type: ignore[assignment]  # its name on the wire
    active = Flag(required=False, help_text="All attachments of the AS.")
    scion_packages = serializers.ChoiceField(
        choices=Host.ScionPackages.choices, required=False, help_text="Installed on its host."
    )
    bandwidth_kbit = BandwidthField(
        required=False, help_text="Of all attachments, in both directions; refused if one of them may not have it."
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if not attrs:
            text = 'No change requested. Send "label", "active", "bandwidth_kbit" or "scion_packages".'
            raise RuleError("nothing_to_change", text)
        return attrs


class DefaultBody(StrictSerializer):
    default_bandwidth_kbit = AnyBandwidthField()
    reason = Text(required=False, max_length=200, default="", allow_blank=True)


class OwnDefaultBody(StrictSerializer):
    own_default_bandwidth_kbit = AnyBandwidthField(allow_null=True, help_text="null: the site default.")
    reason = Text(required=False, max_length=200, default="", allow_blank=True)


# --- limits for a time --------------------------------------------------------------------------------------


class TimedBody(StrictSerializer):
    """Common fields of timed limits."""

    kind: Any = Text()
    begins_at = serializers.DateTimeField(
        required=False, allow_null=True, default=None, help_text="With an offset from UTC. Default: now."
    )
    reason = Text(required=False, max_length=200, default="", allow_blank=True)


def _seconds(help_text: str, *, required: bool = True) -> Whole:
    return Whole(min_value=1, max_value=MAX_TIMED_S, required=required, help_text=help_text)


class _UntilBody(TimedBody):
    """Duration or end."""

    duration_s = _seconds("Duration. Either this or ends_at.", required=False)
    ends_at = serializers.DateTimeField(required=False, help_text="End, with an offset from UTC.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if ("duration_s" in attrs) == ("ends_at" in attrs):
            text = "Send either duration_s or ends_at."
            raise serializers.ValidationError({"duration_s": [serializers.ErrorDetail(text, "timed_length")]})
        return attrs

    def duration(self) -> int:
        values = self.validated_data
        if "duration_s" in values:
            return int(values["duration_s"])
        # Whole seconds, as the service begins at one; otherwise the fraction would be missing at the end.
        begins_at = values["begins_at"] or database_now().replace(microsecond=0)
        return int((values["ends_at"] - begins_at).total_seconds())


class ConstantBody(_UntilBody):
    """One pair of limits for the whole time."""

    kind = serializers.ChoiceField(choices=["constant"])
    limits = LimitsField()

    def profile(self) -> Profile:
        return constant(self.validated_data["limits"], self.duration())


class OutageBody(_UntilBody):
    """Nothing passes in either direction."""

    kind = serializers.ChoiceField(choices=["outage"])

    def profile(self) -> Profile:
        return outage(self.duration())


class StairBody(TimedBody):
    """`count` equal steps from `start` to `end`, each `step_s` long."""

    kind = serializers.ChoiceField(choices=["stair"])
    start = LimitsField()
    end = LimitsField()
    count = Whole(min_value=2, max_value=200)
    step_s = _seconds("Duration of each step.")

    def profile(self) -> Profile:
        values = self.validated_data
        return stair(values["start"], values["end"], values["count"], values["step_s"])


class SquareBody(TimedBody):
    """`low` and `high` in turn, each for `half_period_s`, `cycles` times."""

    kind = serializers.ChoiceField(choices=["square"])
    low = LimitsField()
    high = LimitsField()
    half_period_s = _seconds("Duration of each half.")
    cycles = Whole(min_value=1, max_value=100)

    def profile(self) -> Profile:
        values = self.validated_data
        return square_wave(values["low"], values["high"], values["half_period_s"], values["cycles"])


# Each has `profile()`, which raises `RuleError` (`timed_steps`, `timed_step_short`, `timed_long`).
AnyTimedBody = ConstantBody | StairBody | SquareBody | OutageBody
TIMED_BODIES: dict[str, type[AnyTimedBody]] = {
    "constant": ConstantBody,
    "stair": StairBody,
    "square": SquareBody,
    "outage": OutageBody,
}


def timed_body(data: Any) -> AnyTimedBody:
    """The body of its kind, validated. Raises `serializers.ValidationError`."""
    kind = data.get("kind") if isinstance(data, dict) else None
    known = TIMED_BODIES.get(kind) if isinstance(kind, str) else None
    if isinstance(data, dict) and known is None:
        text = f"Unknown kind of timed limit. Known kinds: {', '.join(TIMED_BODIES)}."
        raise serializers.ValidationError({"kind": [serializers.ErrorDetail(text, "timed_kind")]})
    body = (known or ConstantBody)(data=data)
    body.is_valid(raise_exception=True)
    return body
