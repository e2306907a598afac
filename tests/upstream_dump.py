"""Writes dumps as upstream SCIONLab's `dumpdata` does, from its model. Their numbers are visible: see `small`."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from typing import Any

PASSWORD = "upstream's phrase"


def password_hash(password: str = PASSWORD) -> str:
    """As Django stores it, with few iterations."""
    digest = hashlib.pbkdf2_hmac("sha256", password.encode(), b"salt", 1000)
    return f"pbkdf2_sha256$1000$salt${base64.b64encode(digest).decode()}"


class Dump:
    """Entries by model and primary key, which a test may change before it writes them."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[int, dict[str, Any]]] = {}
        self._last: dict[str, int] = {}

    def __getitem__(self, model: str) -> dict[int, dict[str, Any]]:
        return self.tables.setdefault(model, {})

    def add(self, model: str, pk: int | None = None, **fields: Any) -> int:
        pk = pk or self._last.get(model, 0) + 1
        self._last[model] = pk
        self[model][pk] = fields
        return pk

    def remove_link(self, pk: int) -> None:
        link = self["link"].pop(pk)
        for end in ("interfaceA", "interfaceB"):
            del self["interface"][link[end]]

    def entries(self) -> Iterator[dict[str, Any]]:
        for model, table in self.tables.items():
            for pk, fields in table.items():
                yield {"model": f"scionlab.{model}", "pk": pk, "fields": fields}

    def content(self) -> bytes:
        return json.dumps(list(self.entries())).encode()

    # --- what upstream's services make of one form --------------------------------------------------------------

    def user(self, email: str, **fields: Any) -> int:
        values = {
            "last_login": None,
            "is_superuser": False,
            "first_name": "",
            "last_name": "",
            "is_staff": False,
            "is_active": True,
            "date_joined": "2019-10-02T03:00:00Z",
            "password": password_hash(),
            "email": email,
            "organisation": "",
            "groups": [],
            "user_permissions": [],
        }
        return self.add("user", **(values | fields))

    def isd(self, number: int, label: str | None = None) -> int:
        return self.add("isd", isd_id=number, label=label, **_STAMPS)

    def as_(self, isd: int, as_id: str, **fields: Any) -> int:
        """`isd` is the key of its row."""
        high, middle, low = (int(group, 16) for group in as_id.split(":"))
        values = {
            **_STAMPS,
            "isd": isd,
            "as_id": as_id,
            "as_id_int": high << 32 | middle << 16 | low,
            "label": "",
            "mtu": 1472,
            "owner": None,
            "master_as_key": "2GLC42sKQveCfGfryNRN9w==",
            "is_core": False,
        }
        return self.add("as", **(values | fields))

    def host(self, as_pk: int | None, **fields: Any) -> int:
        pk = self._last.get("host", 0) + 1
        values = {
            "AS": as_pk,
            "internal_ip": "127.0.0.1",
            "public_ip": None,
            "bind_ip": None,
            "label": None,
            "ssh_host": None,
            "uid": f"{pk:032x}",
            "secret": f"secret-{pk}",
            "config_version": 7,
            "config_version_deployed": 7,
            "config_queried_at": None,
        }
        return self.add("host", **(values | fields))

    def router(self, host: int) -> int:
        return self.add("borderrouter", AS=self["host"][host]["AS"], host=host)

    def router_of(self, host: int) -> int:
        """The first one."""
        return next(pk for pk, router in self["borderrouter"].items() if router["host"] == host)

    def infrastructure(self, isd: int, as_id: str, public_ip: str, *, is_core: bool = False, label: str = "") -> int:
        """An AS with a host, a border router and a control service; returns the host."""
        as_pk = self.as_(isd, as_id, is_core=is_core, label=label)
        host = self.host(as_pk, public_ip=public_ip)
        self.router(host)
        self.add("service", AS=as_pk, host=host, type="CS")
        return host

    def interface(self, router: int, **fields: Any) -> int:
        host = self["borderrouter"][router]["host"]
        as_pk = self["host"][host]["AS"]
        of_as = {one["interface_id"] for one in self["interface"].values() if one["AS"] == as_pk}
        ports = {one["public_port"] for one in self["interface"].values() if one["host"] == host}
        values = {
            "AS": as_pk,
            "interface_id": next(number for number in range(1, 32_767) if number not in of_as),
            "host": host,
            "border_router": router,
            "public_ip": None,
            "public_port": next(port for port in range(50_000, 65_536) if port not in ports),
            "bind_ip": None,
        }
        return self.add("interface", **(values | fields))

    def link(self, a: int, b: int, type: str = "PROVIDER", **fields: Any) -> int:  # noqa: A002  the field's name
        """Between two interfaces."""
        values = {"interfaceA": a, "interfaceB": b, "type": type, "active": True, "mtu": 1472}
        return self.add("link", **(values | fields))

    def attachment_point(self, host: int, subnet: str | None = None) -> int:
        """With a VPN whose server has the first address of `subnet`, like 10.10.1.0/24."""
        vpn = None
        if subnet is not None:
            server_ip = subnet.replace(".0/24", ".1")
            keys = {"private_key": "a key", "cert": "a certificate"}
            vpn = self.add("vpn", server=host, server_port=1194, subnet=subnet, server_vpn_ip=server_ip, **keys)
        return self.add("attachmentpoint", AS=self["host"][host]["AS"], vpn=vpn)

    def user_as(self, isd: int, as_id: str, owner: int, installation_type: str = "VM", label: str = "") -> int:
        """With its host and border router; returns the router."""
        as_pk = self.as_(isd, as_id, owner=owner, label=label)
        self.add("useras", as_pk, installation_type=installation_type)
        host = self.host(as_pk)
        self.add("service", AS=as_pk, host=host, type="CS")
        return self.router(host)

    def attach(self, near: int, far: int, public_ip: str, port: int = 50_000, **fields: Any) -> int:
        """A user AS's router `far` to an attachment point's `near`. `bind_ip` is the user AS's, others the Link's."""
        bind_ip = fields.pop("bind_ip", None)
        end = self.interface(far, public_ip=public_ip, public_port=port, bind_ip=bind_ip)
        return self.link(self.interface(near), end, **fields)

    def attach_over_vpn(self, near: int, far: int, vpn: int, ip: str, port: int = 50_000) -> int:
        host = self["borderrouter"][far]["host"]
        keys = {"private_key": "a key", "cert": "a certificate"}
        self.add("vpnclient", vpn=vpn, host=host, ip=ip, active=True, **keys)
        a = self.interface(near, public_ip=self["vpn"][vpn]["server_vpn_ip"])
        return self.link(a, self.interface(far, public_ip=ip, public_port=port))


_STAMPS = {"created_date": "2019-10-02T03:00:00Z", "modified_date": "2019-10-02T03:00:00Z"}


def small() -> Dump:
    """Every kind that upstream has. Hosts have the keys, and secrets `secret-<key>`:

    ISD 17 (rows 1 and 2), ISD 19 (row 3)

    1  17-ffaa:0:1101 core   192.0.2.1 ══ link 1, CORE ══ 2  19-ffaa:0:1301 core   192.0.2.2
         link 2, PROVIDER                                      link 3, PROVIDER, over IPv6
    3  17-ffaa:0:1107 AP     192.0.2.7, VPN 10.10.1.0/24  4  19-ffaa:0:1303 AP     2001:db8::3
         link 4, PEER
    5  17-ffaa:0:1102        192.0.2.4

    6  17-ffaa:1:1   anna   link 5 at 1107 over the VPN, 10.10.1.2:50000
    7  17-ffaa:1:2   anna   link 6 at 1107, 198.51.100.2:50000, behind NAT (10.0.2.15)
    8  19-ffaa:1:b6  ben    link 7 at 1303, [2001:db8:1::b6]:50010, inactive, MTU 1452
    9  of an AS that was deleted
    """
    dump = Dump()
    anna = dump.user("anna@example.org", first_name="Anna", last_name="Tester")
    ben = dump.user("Ben@Example.org", password="!unusable", is_staff=True, is_superuser=True, is_active=False)
    swiss, _, europe = dump.isd(17), dump.isd(17, "Switzerland"), dump.isd(19, "Europe")
    core_17 = dump.infrastructure(swiss, "ffaa:0:1101", "192.0.2.1", is_core=True, label="SCMN")
    core_19 = dump.infrastructure(europe, "ffaa:0:1301", "192.0.2.2", is_core=True)
    ap_17 = dump.infrastructure(swiss, "ffaa:0:1107", "192.0.2.7", label="ETHZ-AP")
    ap_19 = dump.infrastructure(europe, "ffaa:0:1303", "2001:db8::3")
    peer = dump.infrastructure(2, "ffaa:0:1102", "192.0.2.4")
    for_users = dump.router(ap_17)
    dump.attachment_point(ap_17, "10.10.1.0/24")
    dump.attachment_point(ap_19)
    routers = [dump.router_of(host) for host in (core_17, core_19, ap_17, ap_19, peer)]
    at_core_17, at_core_19, at_ap_17, at_ap_19, at_peer = routers
    dump.link(dump.interface(at_core_17), dump.interface(at_core_19), "CORE")
    dump.link(dump.interface(at_core_17), dump.interface(at_ap_17))
    dump.link(dump.interface(at_core_19, public_ip="2001:db8::2"), dump.interface(at_ap_19))
    dump.link(dump.interface(at_ap_17), dump.interface(at_peer), "PEER")
    first = dump.user_as(swiss, "ffaa:1:1", anna, label="Home")
    second = dump.user_as(swiss, "ffaa:1:2", anna, "PKG")
    third = dump.user_as(europe, "ffaa:1:b6", ben, "SRC")
    dump.attach_over_vpn(for_users, first, 1, "10.10.1.2")
    dump.attach(for_users, second, "198.51.100.2", bind_ip="10.0.2.15")
    dump.attach(at_ap_19, third, "2001:db8:1::b6", 50_010, active=False, mtu=1452)
    dump.host(None)
    dump.interface(at_peer)  # 17-ffaa:0:1102#2, which no Link has
    return dump


def large(user_ases: int, *, per_attachment_point: int = 250) -> Dump:
    """One core AS, as many attachment points as it takes, and user ASes of an owner each, with 10 Links per router."""
    dump = Dump()
    isd = dump.isd(17, "Switzerland")
    core = dump.router_of(dump.infrastructure(isd, "ffaa:0:1101", "192.0.2.1", is_core=True))
    router = 0
    for number in range(user_ases):
        place = number % per_attachment_point
        if place == 0:
            ap = number // per_attachment_point
            host = dump.infrastructure(isd, f"ffaa:0:{0x1200 + ap:x}", f"192.0.2.{2 + ap}")
            dump.attachment_point(host)
            a = _quick_interface(dump, core, ap + 1, 50_000 + ap)
            dump.link(a, _quick_interface(dump, dump.router_of(host), 1, 50_000))
        if place % 10 == 0:
            router = dump.router(host)
        owner = dump.user(f"user{number}@example.org")
        far = dump.user_as(isd, f"ffaa:1:{1 + number:x}", owner)
        a = _quick_interface(dump, router, 2 + place, 50_001 + place)
        ip = f"198.51.{100 + number // 250}.{1 + number % 250}"
        dump.link(a, _quick_interface(dump, far, 1, 50_000, ip))
    return dump


def _quick_interface(dump: Dump, router: int, number: int, port: int, ip: str | None = None) -> int:
    """Looks for no free number, which takes long among thousands."""
    host = dump["borderrouter"][router]["host"]
    values = {"AS": dump["host"][host]["AS"], "host": host, "border_router": router, "bind_ip": None}
    return dump.add("interface", interface_id=number, public_port=port, public_ip=ip, **values)
