"""The step of the setup page that makes several things, whole or not at all."""

from __future__ import annotations

from django.db import transaction

from scionlab.accounts.models import User
from scionlab.testbed.infrastructure import attachment_point_create, infrastructure_as_create
from scionlab.testbed.infrastructure_links import infrastructure_link_create
from scionlab.testbed.models import AS, AttachmentPoint, Link


@transaction.atomic
def attachment_point_set_up(
    *,
    core: AS,
    as_text: str,
    label: str,
    public_ipv4: str | None,
    public_ipv6: str | None,
    vpn_subnet: str | None,
    actor: User,
) -> AttachmentPoint:
    """Create an attachment point below `core`, its provider; at `core` itself if `as_text` is empty. Raises as
    `infrastructure_as_create`, `infrastructure_link_create` and `attachment_point_create`."""
    as_ = core
    if as_text:
        as_ = infrastructure_as_create(
            isd=core.isd.isd_id,
            as_text=as_text,
            label=label,
            is_core=False,
            public_ipv4=public_ipv4,
            public_ipv6=public_ipv6,
            actor=actor,
        )
        infrastructure_link_create(a=core, b=as_, type=Link.Type.PROVIDER)
    return attachment_point_create(as_=as_, vpn_subnet=vpn_subnet, actor=actor)
