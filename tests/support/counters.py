"""Which hosts' H and L rose by how much: a picture of all counters before and after."""

from __future__ import annotations

from scionlab.testbed.models import Host


class Counters:
    """`risen()` is {host: (H, L)} of the hosts whose counters differ from when this was made, without new hosts."""

    def __init__(self) -> None:
        self._before = self._read()

    def risen(self) -> dict[Host, tuple[int, int]]:
        found = {}
        for host, (config, limits) in self._read().items():
            was = self._before.get(host, (config, limits))
            if (config, limits) != was:
                found[host] = (config - was[0], limits - was[1])
        return found

    @staticmethod
    def _read() -> dict[Host, tuple[int, int]]:
        return {host: (host.config_version, host.limits_version) for host in Host.objects.all()}
