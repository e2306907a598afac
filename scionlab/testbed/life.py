"""Life of ASes, hosts, VPNs and Links: what another app does when one is made, changes or ends.

An app appends an instance of its subclass to `LIVES` in `AppConfig.ready`. Each method is called in the transaction of
the change, with the locks of its service held, in the order of INSTALLED_APPS; it does nothing unless overridden.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from scionlab.accounts.models import User
from scionlab.testbed.models import AS, VPN, AttachmentPoint, Link, VPNClient

DEACTIVATED: Final = "the link was deactivated"


class Life:
    def as_made(self, as_: AS, *, actor: User | None) -> None:
        """With its host and border router; nothing of it was fetched yet."""

    def as_role_changed(self, as_: AS, *, actor: User | None) -> None:
        """It became a core AS, or is none any more. H of its hosts rises after this."""

    def as_deleted(self, as_: AS, *, actor: User | None) -> None:
        """Its rows are gone."""

    def vpn_made(self, vpn: VPN) -> None:
        """The server of an attachment point's host."""

    def vpn_clients_made(self, clients: Sequence[VPNClient]) -> None:
        """Hosts that got an address in a VPN."""

    def attachment_point_ends(self, ap: AttachmentPoint) -> None:
        """Before its row is deleted; its AS stays."""

    def secret_rotated(self, host_id: int) -> None:
        """Whoever reports from now on has the new secret of the host, or has it within the grace period."""

    def deployed(self, host_id: int) -> None:
        """The stock client confirmed that it has installed a newer configuration."""

    def ends_changed(self, host_id: int, link_ids: Collection[int], config_version: int) -> None:
        """Links that configurations of this attachment point's host have, have otherwise, or have no longer from this
        H on; they may be deleted already. Called last."""

    def links_end(self, links: Sequence[Link], *, actor: User | None, why: str) -> None:
        """They are deactivated or deleted: what is temporary ends with them. The caller raises the counters."""


LIVES: Final[list[Life]] = []


def links_end(links: Iterable[Link], *, actor: User | None, why: str) -> None:
    """End what is temporary at these Links; for services that hold their locks and raise the counters."""
    ended = list(links)
    for life in LIVES:
        life.links_end(ended, actor=actor, why=why)
