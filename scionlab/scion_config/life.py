"""Keys and certificates in the life of ASes and VPNs."""

from __future__ import annotations

from collections.abc import Sequence

from scionlab.accounts.models import User
from scionlab.scion_config.chain import as_equip, as_role_changed, own_keys_make
from scionlab.scion_config.vpn import vpn_clients_admit, vpn_keys_make
from scionlab.testbed.life import Life
from scionlab.testbed.models import AS, VPN, VPNClient


class KeysLife(Life):
    def as_made(self, as_: AS, *, actor: User | None) -> None:
        as_equip(as_, actor=actor)

    def as_role_changed(self, as_: AS, *, actor: User | None) -> None:
        as_role_changed(as_, actor=actor)
        own_keys_make([as_], actor=actor)

    def as_deleted(self, as_: AS, *, actor: User | None) -> None:
        if as_.is_core:
            as_role_changed(as_, actor=actor)

    def vpn_made(self, vpn: VPN) -> None:
        vpn_keys_make(vpn)

    def vpn_clients_made(self, clients: Sequence[VPNClient]) -> None:
        vpn_clients_admit(clients)
