"""Entries of a dump -> `Network`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar, cast

from contract.link_rules import bind_ip_for
from scionlab.importer import rows
from scionlab.importer.dump import APP, Entry, read_entries
from scionlab.platform.notation.isd_as import MAX_AS_ID

_Row = TypeVar("_Row")
_USAGES = ("sensitive-voting", "regular-voting", "cp-root", "cp-ca", "cp-as")
_INSTALLATION_TYPES = ("VM", "PKG", "SRC", "DEDICATED")


def read_network(content: bytes) -> rows.Network:
    """Raises `DumpError`, also for a reference to a missing entry."""
    return _Reader(read_entries(content)).network()


class _Reader:
    def __init__(self, entries: dict[str, list[Entry]]) -> None:
        self._entries = entries
        self._users = self._table("user", _user)
        self._isd_numbers = self._table("isd", lambda entry: entry.integer("isd_id"))
        self._installation_types = self._table("useras", lambda e: e.choice("installation_type", *_INSTALLATION_TYPES))
        self._ases = self._table("as", self._as)
        self._hosts = self._table("host", self._host)
        self._routers = self._read_routers()
        self._vpns = self._table("vpn", self._vpn)
        self._clients = self._table("vpnclient", self._client)
        self._client_at = {(one.host, one.ip, self._vpns[one.vpn].host): one.pk for one in self._clients.values()}
        self._attachment_points = self._table("attachmentpoint", self._attachment_point)
        self._attached = {ap.as_pk for ap in self._attachment_points.values()}
        self._interfaces = self._table("interface", self._end)

    def network(self) -> rows.Network:
        for entry in self._of("useras"):
            _referred(entry, "pk", entry.pk, self._ases)
        links = self._table("link", self._link)
        linked = {end.pk for link in links.values() for end in link.ends}
        return rows.Network(
            users=self._users,
            isds=self._isds(),
            ases=self._ases,
            hosts=self._hosts,
            routers=self._routers,
            vpns=self._vpns,
            clients=self._clients,
            attachment_points=self._attachment_points,
            links=links,
            keys=self._keys(),
            trcs=self._table("trc", self._trc),
            entries={model: len(found) for model, found in self._entries.items()},
            unlinked_interfaces=tuple(end.name for pk, end in self._interfaces.items() if pk not in linked),
        )

    # --- tables -----------------------------------------------------------------------------------------------

    def _of(self, model: str) -> list[Entry]:
        return self._entries.get(APP + model, [])

    def _table(self, model: str, read: Callable[[Entry], _Row]) -> dict[int, _Row]:
        return {entry.pk: read(entry) for entry in self._of(model)}

    def _isds(self) -> dict[int, rows.Isd]:
        found: dict[int, rows.Isd] = {}
        for entry in self._of("isd"):
            number, label = self._isd_numbers[entry.pk], entry.text("label")
            known = found.get(number, rows.Isd(number, "", ()))
            found[number] = rows.Isd(number, known.label or label, (*known.pks, entry.pk))
        return dict(sorted(found.items()))

    def _as(self, entry: Entry) -> rows.As:
        return rows.As(
            pk=entry.pk,
            isd=_referred(entry, "isd", entry.reference("isd"), self._isd_numbers),
            as_id=entry.as_id("as_id"),
            label=entry.text("label"),
            is_core=entry.flag("is_core"),
            owner=_key_or_none(entry, "owner", self._users),
            installation_type=self._installation_types.get(entry.pk),
            master_key=entry.text("master_as_key"),
        )

    def _host(self, entry: Entry) -> rows.Host:
        return rows.Host(
            pk=entry.pk,
            as_pk=_key_or_none(entry, "AS", self._ases),
            uid=entry.text("uid"),
            secret=entry.text("secret"),
            label=entry.text("label"),
            internal_ip=entry.address("internal_ip"),
            public_ip=entry.optional_address("public_ip"),
            bind_ip=entry.optional_address("bind_ip"),
        )

    def _read_routers(self) -> dict[int, rows.BorderRouter]:
        """Routers of an AS are numbered in the order of their keys, over all hosts."""
        found: dict[int, rows.BorderRouter] = {}
        count: dict[int, int] = {}
        for entry in self._of("borderrouter"):
            as_pk, host = _key(entry, "AS", self._ases), _key(entry, "host", self._hosts)
            count[as_pk] = count.get(as_pk, 0) + 1
            found[entry.pk] = rows.BorderRouter(entry.pk, as_pk, host, count[as_pk])
        return found

    def _vpn(self, entry: Entry) -> rows.Vpn:
        host = _key(entry, "server", self._hosts)
        subnet, port = entry.text("subnet"), entry.integer("server_port")
        return rows.Vpn(entry.pk, host, subnet, entry.address("server_vpn_ip"), port)

    def _client(self, entry: Entry) -> rows.VpnClient:
        vpn, host = _key(entry, "vpn", self._vpns), _key(entry, "host", self._hosts)
        return rows.VpnClient(entry.pk, vpn, host, entry.address("ip"))

    def _attachment_point(self, entry: Entry) -> rows.AttachmentPoint:
        as_pk, vpn = entry.reference("AS"), entry.optional_reference("vpn")
        name = _referred(entry, "AS", as_pk, self._ases).name
        if vpn is not None:
            host: int | None = _referred(entry, "vpn", vpn, self._vpns).host
        else:
            public = (one.pk for one in self._hosts.values() if one.as_pk == as_pk and one.public_ip)
            host = next(public, None)
        return rows.AttachmentPoint(entry.pk, as_pk, vpn, host, name)

    # --- keys of SCION ----------------------------------------------------------------------------------------

    def _keys(self) -> dict[int, rows.Key]:
        """For each AS and usage the highest version with a certificate, as the source delivers it."""
        certificates: dict[int, Entry] = {}
        keys = {entry.pk: entry for entry in self._of("key")}
        for entry in self._of("certificate"):
            key = entry.optional_reference("key")
            if key is None:
                continue
            _referred(entry, "key", key, keys)
            if key not in certificates or entry.integer("version") > certificates[key].integer("version"):
                certificates[key] = entry
        newest: dict[tuple[int, str], tuple[int, rows.Key]] = {}
        for entry in keys.values():
            if entry.pk in certificates:
                row, version = self._key(entry, certificates[entry.pk]), entry.integer("version")
                place = (row.as_id, row.usage)
                if place not in newest or version > newest[place][0]:
                    newest[place] = (version, row)
        return {row.pk: row for _, row in newest.values()}

    def _key(self, entry: Entry, certificate: Entry) -> rows.Key:
        as_pk = entry.optional_reference("AS")
        return rows.Key(
            pk=entry.pk,
            as_pk=as_pk,
            # The number of a deleted AS is in a separate column.
            as_id=entry.integer("_as_id_int", high=MAX_AS_ID)
            if as_pk is None
            else _referred(entry, "AS", as_pk, self._ases).as_id,
            usage=entry.choice("usage", *_USAGES),
            pem=entry.text("key"),
            certificate=certificate.text("certificate"),
            certificate_pk=certificate.pk,
        )

    def _trc(self, entry: Entry) -> rows.Trc:
        isd = _referred(entry, "isd", entry.reference("isd"), self._isd_numbers)
        base, serial = entry.integer("base_version"), entry.integer("serial_version")
        return rows.Trc(entry.pk, isd, base, serial, entry.text("trc"))

    # --- Links ------------------------------------------------------------------------------------------------

    def _end(self, entry: Entry) -> rows.End:
        as_pk, router = _key(entry, "AS", self._ases), _key(entry, "border_router", self._routers)
        host = self._hosts[_key(entry, "host", self._hosts)]
        own_ip, own_bind = entry.optional_address("public_ip"), entry.optional_address("bind_ip")
        public_ip = own_ip or host.public_ip
        interface_id = entry.integer("interface_id")
        return rows.End(
            pk=entry.pk,
            as_pk=as_pk,
            host=host.pk,
            router=router,
            interface_id=interface_id,
            public_ip=public_ip,
            public_port=entry.integer("public_port"),
            # The source's rule: an interface with its own public address has its own bind address, or none.
            bind_ip=own_bind if own_ip else public_ip and bind_ip_for(public_ip, host.bind_ip),
            bind_port=entry.optional_integer("bind_port"),
            vpn_client=None,
            name=f"{self._ases[as_pk].name}#{interface_id}",
        )

    def _link(self, entry: Entry) -> rows.Link:
        a, b = (
            _referred(entry, field, entry.reference(field), self._interfaces) for field in ("interfaceA", "interfaceB")
        )
        link_type = cast("rows.LinkType", entry.choice("type", "PROVIDER", "CORE", "PEER"))
        is_attached = self._ases[b.as_pk].is_user_as and a.as_pk in self._attached
        return rows.Link(
            pk=entry.pk,
            type=link_type,
            active=entry.flag("active"),
            mtu=entry.integer("mtu"),
            a=a,
            b=self._over_vpn(b, a),
            is_limited=link_type == "PROVIDER" and is_attached,
        )

    def _over_vpn(self, end: rows.End, parent: rows.End) -> rows.End:
        """The dump does not say whether a Link uses the VPN: it does if the child has its client's address."""
        client = self._client_at.get((end.host, end.public_ip or "", parent.host))
        return end if client is None else replace(end, vpn_client=client)


def _user(entry: Entry) -> rows.User:
    name = f"{entry.text('first_name')} {entry.text('last_name')}".strip()
    return rows.User(entry.pk, entry.text("email"), name, entry.text("password"), entry.flag("is_active"))


def _referred(entry: Entry, field: str, pk: int, table: dict[int, _Row]) -> _Row:
    found = table.get(pk)
    if found is None:
        entry.fail(field, f"is {pk}, which is not in the file. Dump the whole app: manage.py dumpdata scionlab")
    return found


def _key(entry: Entry, field: str, table: dict[int, _Row]) -> int:
    pk = entry.reference(field)
    _referred(entry, field, pk, table)
    return pk


def _key_or_none(entry: Entry, field: str, table: dict[int, _Row]) -> int | None:
    return None if entry.optional_reference(field) is None else _key(entry, field, table)
