"""What is admitted on behalf of a link ends in that link's class, whatever the links: against `reference`."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ap_agent.desired import without_ambiguous
from ap_agent.model import IFB_MAJOR, NIC_MAJOR, data_class, heartbeat_class
from ap_agent.whole.wanted import fragment_links
from bandwidth_config import IPAddress, LinkInfo, parse_ip
from tests.property.crowds import LOCALS, LOCALS6, PORTS
from tests.property.reference import FRAGMENT, Probe, owner_of
from tests.property.test_classification_properties import probes_of

REMOTES = {4: ["192.0.2.11", "192.0.2.12"], 6: ["2001:db8::11", "2001:db8::12"]}


@st.composite
def some_links(draw: st.DrawFn) -> list[LinkInfo]:
    """Up to six behind two addresses of one family; with or without port, local port and local address."""
    version = draw(st.sampled_from([4, 6]))
    here: list[IPAddress | None] = [None, *(LOCALS if version == 4 else LOCALS6)[:2]]
    found = []
    for number in range(1, draw(st.integers(1, 6)) + 1):
        remote = parse_ip(draw(st.sampled_from(REMOTES[version])))
        kbit, port = draw(st.sampled_from([0, 100, 200, 300])), draw(st.sampled_from([*PORTS[:2], None]))
        link = LinkInfo(number, 1, True, kbit, remote, remote_port=port)
        if port is not None:
            local_port = draw(st.sampled_from([None, *PORTS[:2]]))
            link = replace(link, local_ip=draw(st.sampled_from(here)), local_port=local_port)
        found.append(link)
    return without_ambiguous(found)[0]


@given(some_links(), st.sampled_from([NIC_MAJOR, IFB_MAJOR]))
def test_fragments_of_an_address_end_with_the_link_that_admits_them(links: list[LinkInfo], major: int) -> None:
    for address, link in fragment_links(links, major).items():
        local = (LOCALS if address.version == 4 else LOCALS6)[0]
        is_v4 = address.version == 4
        probe = Probe(address, local, offset=185 * is_v4, extension=None if is_v4 else FRAGMENT)
        assert owner_of(probe, links, major) == data_class(major, link.interface_id)


@given(st.data(), st.sampled_from([NIC_MAJOR, IFB_MAJOR]))
def test_whole_packets_that_an_entry_describes_are_those_of_its_link(data: st.DataObject, major: int) -> None:
    links = data.draw(some_links())
    probe = data.draw(probes_of(links))
    link = fragment_links(links, major).get(probe.remote)
    if link is not None and is_described(probe, link):
        own = (data_class(major, link.interface_id), heartbeat_class(major, link.interface_id))
        assert owner_of(probe, links, major) in own


def is_described(probe: Probe, link: LinkInfo) -> bool:
    """By ports and local address, as the program reads an entry; an entry without a port means every packet."""
    if link.remote_port is None:
        return True
    return (
        probe.has_ports_at_their_place
        and link.remote_port == probe.remote_port
        and link.local_port in (None, probe.local_port)
        and link.local_ip in (None, probe.local)
    )
