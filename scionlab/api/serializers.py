"""The REST API's documents. They carry values; every rule about them is checked by the services."""

from __future__ import annotations

from typing import Any, get_args

from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from bandwidth_config import MAX_BANDWIDTH_KBIT, MAX_PORT, MIN_PORT, RuleError, parse_bandwidth
from scionlab.models import AttachmentPoint, BandwidthPolicy, Link, UserAS
from scionlab.selectors import Stage, link_status
from scionlab.services.user_as import DEFAULT_PORT, MAX_ATTACHMENTS, AttachmentSpec


@extend_schema_field({"type": "integer", "minimum": 0, "maximum": MAX_BANDWIDTH_KBIT, "example": 500})
class BandwidthField(serializers.Field[int, Any, int, Any]):
    """kbit/s, read as the web form reads it: the same inputs are refused, with the same sentence."""

    def validate_empty_values(self, data: Any) -> tuple[bool, Any]:
        return super().validate_empty_values("" if data is None and not self.allow_null else data)

    def to_internal_value(self, data: Any) -> int:
        try:
            return parse_bandwidth(data)
        except RuleError as exc:
            raise serializers.ValidationError(exc.message, code=exc.code) from exc

    def to_representation(self, value: int) -> int:
        return value


class LinkStatusSerializer(serializers.Serializer[Any]):
    """From the number that was asked for to what the attachment point's kernel has. All bandwidths in kbit/s."""

    stage = serializers.ChoiceField(choices=get_args(Stage))
    requested_kbit = serializers.IntegerField()
    maximum_kbit = serializers.IntegerField(help_text="The default in force at the attachment point, as carried out.")
    wanted_kbit = serializers.IntegerField(help_text="What is to be enforced: the lower of the two.")
    enforced_kbit = serializers.IntegerField(allow_null=True, help_text="What the kernel was last seen to have.")
    since = serializers.DateTimeField(allow_null=True)
    delivered_at = serializers.DateTimeField(allow_null=True)
    text = serializers.CharField(help_text="One sentence for people.")


class LinkSerializer(serializers.Serializer[Link]):
    """A Link of a user AS to an attachment point."""

    id = serializers.IntegerField(source="pk")
    as_id = serializers.IntegerField(source="interface_b.AS_id", help_text="The id of the AS at /api/v1/ases/.")
    isd_as = serializers.CharField(source="interface_b.AS.isd_as")
    as_label = serializers.CharField(source="interface_b.AS.label")
    interface_id = serializers.IntegerField(source="interface_b.interface_id")
    attachment_point_id = serializers.SerializerMethodField()
    attachment_point = serializers.CharField(source="interface_a.AS.isd_as", help_text="Its ISD-AS.")
    attachment_point_interface_id = serializers.IntegerField(
        source="interface_a.interface_id", help_text="The AP's end: the Link's key in link_info.json."
    )
    attachment_point_ip = serializers.IPAddressField(source="interface_a.public_ip")
    attachment_point_port = serializers.IntegerField(source="interface_a.public_port")
    use_vpn = serializers.SerializerMethodField()
    public_ip = serializers.IPAddressField(source="interface_b.public_ip")
    public_port = serializers.IntegerField(source="interface_b.public_port")
    bind_ip = serializers.IPAddressField(source="interface_b.bind_ip", allow_null=True)
    bind_port = serializers.IntegerField(source="interface_b.bind_port", allow_null=True)
    active = serializers.BooleanField()
    bandwidth_kbit = serializers.IntegerField()
    status = serializers.SerializerMethodField()

    def get_attachment_point_id(self, link: Link) -> int | None:
        ap = link.attachment_point
        return None if ap is None else ap.pk

    def get_use_vpn(self, link: Link) -> bool:
        return link.interface_b.vpn_client_id is not None

    @extend_schema_field(LinkStatusSerializer)
    def get_status(self, link: Link) -> dict[str, Any]:
        return dict(LinkStatusSerializer(link_status(link, now=timezone.now())).data)


class LinkChangeSerializer(serializers.Serializer[Any]):
    """What may be changed at a Link; what is left out stays."""

    bandwidth_kbit = BandwidthField(required=False)
    active = serializers.BooleanField(required=False)


class AttachmentSerializer(serializers.Serializer[Any]):
    """One attachment of a user AS, as in the web form."""

    attachment_point_id = serializers.IntegerField()
    link_id = serializers.IntegerField(
        required=False, allow_null=True, help_text="Of an attachment that exists and is kept or edited."
    )
    use_vpn = serializers.BooleanField(default=False)
    public_ip = serializers.CharField(required=False, allow_null=True, max_length=60)
    public_port = serializers.IntegerField(default=DEFAULT_PORT, help_text=f"UDP, {MIN_PORT} to {MAX_PORT}.")
    bandwidth_kbit = BandwidthField(
        required=False, allow_null=True, help_text="null: the default in force there, copied."
    )
    bind_ip = serializers.CharField(required=False, allow_null=True, max_length=60)
    bind_port = serializers.IntegerField(required=False, allow_null=True)
    active = serializers.BooleanField(default=True)


class UserASChangeSerializer(serializers.Serializer[Any]):
    """A user AS as it is to be."""

    label = serializers.CharField(allow_blank=True, default="", max_length=100)  # type: ignore[assignment]  # its name on the wire
    installation_type = serializers.ChoiceField(
        choices=UserAS.Installation.choices, default=UserAS.Installation.VM.value
    )
    attachments = AttachmentSerializer(many=True, help_text=f"1 to {MAX_ATTACHMENTS}.")

    def specs(self) -> list[AttachmentSpec]:
        """The validated attachments, for the services."""
        return [AttachmentSpec(**one) for one in self.validated_data["attachments"]]


class ActiveSerializer(serializers.Serializer[Any]):
    active = serializers.BooleanField()


class UserASSerializer(serializers.Serializer[UserAS]):
    """A user AS with its Links."""

    id = serializers.IntegerField(source="pk")
    isd_as = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]  # its name on the wire
    installation_type = serializers.ChoiceField(choices=UserAS.Installation.choices)
    owner = serializers.EmailField(source="owner.email")
    created_at = serializers.DateTimeField()
    links = serializers.SerializerMethodField()

    @extend_schema_field(LinkSerializer(many=True))
    def get_links(self, user_as: UserAS) -> list[dict[str, Any]]:
        by_as: dict[int, list[Link]] = self.context["links_by_as"]
        return [dict(LinkSerializer(link).data) for link in by_as.get(user_as.pk, [])]


class AttachmentPointSerializer(serializers.Serializer[AttachmentPoint]):
    """Where a user AS may attach."""

    id = serializers.IntegerField(source="pk")
    isd_as = serializers.CharField(source="AS.isd_as")
    label = serializers.CharField(source="AS.label")  # type: ignore[assignment]  # its name on the wire
    default_bandwidth_kbit = serializers.SerializerMethodField(
        help_text="The default in force: initial value and maximum of the Links here."
    )
    has_vpn = serializers.SerializerMethodField()
    has_ipv4 = serializers.SerializerMethodField()
    has_ipv6 = serializers.SerializerMethodField()

    def get_default_bandwidth_kbit(self, ap: AttachmentPoint) -> int:
        policy: BandwidthPolicy = self.context["policy"]
        return ap.default_in_force(policy)

    def get_has_vpn(self, ap: AttachmentPoint) -> bool:
        return hasattr(ap.host, "vpn")

    def get_has_ipv4(self, ap: AttachmentPoint) -> bool:
        return ap.host.public_ipv4 is not None

    def get_has_ipv6(self, ap: AttachmentPoint) -> bool:
        return ap.host.public_ipv6 is not None


class CredentialsSerializer(serializers.Serializer[Any]):
    email = serializers.CharField(max_length=254)
    password = serializers.CharField(max_length=4096, trim_whitespace=False, write_only=True)


class TokenSerializer(serializers.Serializer[Any]):
    token = serializers.CharField(help_text='Send it as "Authorization: Token ..." with every request.')


class ErrorSerializer(serializers.Serializer[Any]):
    """Every error of this API."""

    code = serializers.CharField()
    message = serializers.CharField()
    fields = serializers.DictField(child=serializers.ListField(child=serializers.DictField()))  # type: ignore[assignment]  # its name on the wire
