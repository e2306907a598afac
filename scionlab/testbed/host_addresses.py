"""Rules for the addresses of a host, with errors by field. Read-only."""

from __future__ import annotations

from django.conf import settings

from bandwidth_config import RuleError
from contract.link_rules import check_bind_address, check_internal_address, check_underlay_address
from scionlab.platform.field_errors import FieldRuleError, at_field
from scionlab.testbed.models import AS, Host
from scionlab.testbed.models.link import is_user_as


def checked_addresses(
    public_ipv4: str | None, public_ipv6: str | None, bind_ip: str | None, *, is_public: bool
) -> dict[str, str | None]:
    """The three addresses, normalized; `is_public`: one of the first two is required. Raises `FieldRuleError`
    (`address_required`, see `check_underlay_address`)."""
    checked: dict[str, str | None] = {}
    only = settings.UNDERLAY_GLOBAL_ONLY
    for name, value, family in (("public_ipv4", public_ipv4, 4), ("public_ipv6", public_ipv6, 6)):
        with at_field(name):
            checked[name] = str(check_underlay_address(value, global_only=only, family=family)) if value else None
    with at_field("bind_ip"):
        checked["bind_ip"] = str(check_bind_address(bind_ip)) if bind_ip else None
    if is_public and checked["public_ipv4"] is None and checked["public_ipv6"] is None:
        text = "A host of an infrastructure AS needs a public address. Give it an IPv4 or an IPv6 address."
        raise FieldRuleError("address_required", text, "public_ipv4")
    return checked


def needs_public_address(host: Host) -> bool:
    """False for user ASes without customers: they have addresses per attachment."""
    return host.AS is not None and (not is_user_as(host.AS) or hasattr(host, "attachment_point"))


def checked_internal_ip(text: str, as_: AS | None, *, host_id: int | None) -> str:
    """The internal address of a host (None: a new one), unique in its AS. Raises `FieldRuleError` (`address_invalid`,
    `address_refused`, `internal_ip_taken`)."""
    others = [] if as_ is None else [host for host in as_.hosts.order_by("pk") if host.pk != host_id]
    with at_field("internal_ip"):
        checked = str(check_internal_address(text, alone=not others))
    taken = next((other for other in others if other.internal_ip == checked), None)
    if taken is not None:
        text = f"{checked} is the internal address of {taken}. Give each host of the AS another one."
        raise FieldRuleError("internal_ip_taken", text, "internal_ip")
    return checked


def check_others_are_reached(as_: AS) -> None:
    """Check before an AS gets another host. Raises `FieldRuleError` (`internal_ip_of_other`)."""
    for other in as_.hosts.order_by("pk"):
        try:
            check_internal_address(other.internal_ip, alone=False)
        except RuleError as exc:
            text = (
                f"{other} has the internal IP {other.internal_ip}, which other hosts cannot reach. Give it an "
                "address in the AS's own network first."
            )
            raise FieldRuleError("internal_ip_of_other", text, "AS") from exc
