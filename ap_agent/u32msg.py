"""Bytes of u32 filters, both ways: packing ours, reading whatever is there (`bpfmsg` has the other kind of ours). No
sockets here.

Layouts are those of linux/pkt_cls.h and linux/tc_act/tc_mirred.h.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from functools import lru_cache
from socket import htonl, htons, ntohl, ntohs

from ap_agent import bpfmsg
from ap_agent.model import (
    ETH_P_ALL,
    GONE,
    INGRESS_HOOK,
    MARKER_CHAIN,
    MARKER_PREF,
    Filter,
    Handle,
    InstalledFilter,
    Key,
    Selector,
)
from ap_agent.tcmsg import TCA_KIND, TCA_OPTIONS, attribute, attributes, tcmsg, text, text_of, u32

TCA_CHAIN = 11
TCA_U32_CLASSID, TCA_U32_HASH, TCA_U32_LINK, TCA_U32_DIVISOR, TCA_U32_SEL, TCA_U32_ACT = 1, 2, 3, 4, 5, 7
TCA_ACT_KIND, TCA_ACT_OPTIONS, TCA_MIRRED_PARMS = 1, 2, 2
TC_U32_TERMINAL = 1
TCA_EGRESS_REDIR = 1
TC_ACT_STOLEN = 4

_TCMSG = struct.Struct("=BxxxiIII")
_U32_SEL = struct.Struct("=BBBxHHhhI")
_KEY = struct.Struct("=IIii")
_MIRRED = struct.Struct("=IIiiiiI")

# Where each kind of filter keeps its actions, to see who else redirects into our IFB.
_ACTIONS_OF_KIND = {"u32": TCA_U32_ACT, "matchall": 2, "flower": 3, "basic": 3, "bpf": 1, "fw": 4, "flow": 9}


def _info(pref: int, protocol: int) -> int:
    return pref << 16 | htons(protocol)


def pack_table(ifindex: int, one: InstalledFilter) -> bytes:
    options = attribute(TCA_OPTIONS, u32(TCA_U32_DIVISOR, one.buckets or 1))
    return tcmsg(ifindex, one.handle, int(one.hook), _info(one.pref, one.protocol)) + text(TCA_KIND, "u32") + options


def pack_filter(ifindex: int, one: Filter, redirect_ifindex: int | None, handle: int = 0) -> bytes:
    """`redirect_ifindex` is the device behind the name in `one.redirect_to`. With handle 0 it goes to the first table
    of the preference, where the kernel picks the node id.
    """
    flags = TC_U32_TERMINAL if one.table is None else 0
    offset, mask = (one.selector.offset, one.selector.mask) if one.selector is not None else (0, 0)
    selector = _U32_SEL.pack(flags, 0, len(one.keys), 0, 0, 0, offset, htonl(mask))
    keys = b"".join(_KEY.pack(htonl(key.mask), htonl(key.value), key.offset, 0) for key in one.keys)
    options = attribute(TCA_U32_SEL, selector + keys)
    if handle:
        options += u32(TCA_U32_HASH, handle & 0xFFFFF000)
    if one.flowid is not None:
        options += u32(TCA_U32_CLASSID, int(one.flowid))
    if one.table is not None:
        options += u32(TCA_U32_LINK, one.table << 20)
    if redirect_ifindex is not None:
        options += attribute(TCA_U32_ACT, attribute(1, _mirred(redirect_ifindex)))
    head = tcmsg(ifindex, handle, int(one.hook), _info(one.pref, one.protocol))
    chain = u32(TCA_CHAIN, one.chain) if one.chain else b""
    return head + text(TCA_KIND, "u32") + chain + attribute(TCA_OPTIONS, options)


def _mirred(ifindex: int) -> bytes:
    parms = _MIRRED.pack(0, 0, TC_ACT_STOLEN, 0, 0, TCA_EGRESS_REDIR, ifindex)
    return text(TCA_ACT_KIND, "mirred") + attribute(TCA_ACT_OPTIONS, attribute(TCA_MIRRED_PARMS, parms))


def pack_filter_name(ifindex: int, one: InstalledFilter, *, whole_list: bool = False) -> bytes:
    """For a delete: one filter by its handle, or the whole list (all filters of the preference)."""
    handle = 0 if whole_list else one.handle
    chain = u32(TCA_CHAIN, one.chain) if one.chain else b""
    return tcmsg(ifindex, handle, int(one.hook), _info(one.pref, one.protocol)) + text(TCA_KIND, one.kind) + chain


MARKER = Filter(hook=INGRESS_HOOK, pref=MARKER_PREF, protocol=ETH_P_ALL, keys=(Key(0, 0, 0),), chain=MARKER_CHAIN)


def parse_filter(data: bytes, names: dict[int, str]) -> InstalledFilter:
    """`names` are device names by ifindex; a redirect to a device that is not there reads `GONE`."""
    _, _, handle, parent, info = _TCMSG.unpack_from(data)
    found = dict(attributes(data[_TCMSG.size :]))
    chain = struct.unpack_from("=I", found[TCA_CHAIN])[0] if TCA_CHAIN in found else 0
    hook, pref, protocol = Handle.from_int(parent), info >> 16, ntohs(info & 0xFFFF)
    kind = text_of(found.get(TCA_KIND, b""))
    options = dict(attributes(found.get(TCA_OPTIONS, b""))) if TCA_OPTIONS in found else {}
    redirects = [_redirect(action, names) for action in _actions(kind, options)]
    targets = tuple(name for name in redirects if name is not None)
    buckets = struct.unpack_from("=I", options[TCA_U32_DIVISOR])[0] if TCA_U32_DIVISOR in options else None
    is_rule = kind == "u32" and handle != 0 and buckets is None
    meaning = _u32_meaning((hook, chain, pref, protocol), options, redirects) if is_rule else None
    program = bpfmsg.program_of(options) if kind == "bpf" else None
    return InstalledFilter(hook, chain, pref, protocol, kind, handle, meaning, targets, buckets, program)


def _u32_meaning(
    place: tuple[Handle, int, int, int], options: dict[int, bytes], redirects: list[str | None]
) -> Filter | None:
    """What it does, or None when it has anything that ours never have (offsets, other actions, other hashes)."""
    data = options.get(TCA_U32_SEL, b"")
    if len(data) < _U32_SEL.size or len(redirects) > 1 or None in redirects:
        return None
    flags, shift, count, offmask, off, offoff, hash_offset, hash_mask = _U32_SEL.unpack_from(data)
    is_link = TCA_U32_LINK in options
    if flags != (0 if is_link else TC_U32_TERMINAL) or any((shift, offmask, off, offoff)):
        return None
    keys = tuple(_keys(data, count))
    selector = _selector(hash_offset, ntohl(hash_mask))
    if len(keys) != count or (hash_mask and selector is None) or (selector is not None and not is_link):
        return None
    flowid = struct.unpack_from("=I", options[TCA_U32_CLASSID])[0] if TCA_U32_CLASSID in options else None
    if is_link and (redirects or flowid is not None):
        return None
    hook, chain, pref, protocol = place
    return Filter(
        hook=hook,
        pref=pref,
        protocol=protocol,
        keys=keys,
        flowid=None if flowid is None else Handle.from_int(flowid),
        redirect_to=redirects[0] if redirects else None,
        chain=chain,
        table=struct.unpack_from("=I", options[TCA_U32_LINK])[0] >> 20 if is_link else None,
        selector=selector,
    )


@lru_cache(maxsize=4096)
def _selector(offset: int, mask: int) -> Selector | None:
    """None for no hash at all, and for one that is not of a single byte of an aligned word."""
    for place in range(4):
        one = Selector(offset + place)
        if offset >= 0 and one.offset == offset and one.mask == mask:
            return one
    return None


def _keys(selector: bytes, count: int) -> Iterator[Key]:
    for position in range(_U32_SEL.size, min(len(selector) - 15, _U32_SEL.size + 16 * count), 16):
        mask, value, offset, offset_mask = _KEY.unpack_from(selector, position)
        if offset_mask:
            return
        yield _key(offset, value, mask)


@lru_cache(maxsize=1 << 16)
def _key(offset: int, value: int, mask: int) -> Key:
    """One object for all filters that have it: thousands of links ask for UDP at the same place."""
    return Key(offset, ntohl(value), ntohl(mask))


def _actions(kind: str, options: dict[int, bytes]) -> Iterable[bytes]:
    data = options.get(_ACTIONS_OF_KIND.get(kind, 0))
    return [action for _, action in attributes(data)] if data else []


def _redirect(action: bytes, names: dict[int, str]) -> str | None:
    """The name of the device that a plain egress redirect points at; None for every other action."""
    found = dict(attributes(action))
    options = dict(attributes(found.get(TCA_ACT_OPTIONS, b"")))
    parms = options.get(TCA_MIRRED_PARMS, b"")
    if text_of(found.get(TCA_ACT_KIND, b"")) != "mirred" or len(parms) < _MIRRED.size:
        return None
    _, _, action_code, _, _, eaction, ifindex = _MIRRED.unpack_from(parms)
    if (action_code, eaction) != (TC_ACT_STOLEN, TCA_EGRESS_REDIR):
        return None
    return names.get(ifindex, GONE)
