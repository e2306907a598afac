"""Search terms of the administrators' lists: ISD-ASes (hexadecimal), addresses, email addresses, labels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Any

from django.db.models import Q, QuerySet
from django.http import HttpRequest

from bandwidth_config import RuleError
from contract.link_rules import parse_ip
from scionlab.platform.notation.isd_as import FIRST_USER_AS_ID, MAX_ISD, parse_as_id, parse_isd_as

_PREFIX = re.compile(r"(?:([1-9][0-9]{0,4})-)?([0-9a-f]{1,4}):(?:([0-9a-f]{1,4}):?)?", flags=re.ASCII | re.IGNORECASE)
_GROUP = re.compile(r"[0-9a-f]{1,4}", flags=re.ASCII | re.IGNORECASE)
_USER_AS_BLOCK = FIRST_USER_AS_ID & ~0xFFFF


def exact_as(text: str, path: str) -> Q | None:
    """Build the condition that the AS at `path` ("" or ending in "__") has this ISD-AS or AS id; None if it is
    neither."""
    try:
        isd, as_id = parse_isd_as(text)
    except RuleError:
        pass
    else:
        return Q(**{f"{path}isd__isd_id": isd, f"{path}as_id": as_id})
    try:
        return Q(**{f"{path}as_id": parse_as_id(text)})
    except RuleError:
        return None


def as_query(word: str, path: str) -> Q:
    """Build the condition that the AS at `path` matches `word`. A complete ISD-AS or AS id matches one AS; a prefix
    (`ffaa:1:`, `17-ffaa:`) a range; a single group (`b6`) the user AS that ends with it. Nothing is read as decimal.
    Any other word matches no AS."""
    return exact_as(word.replace("_", ":"), path) or _as_range(word, path)


def _as_range(word: str, path: str) -> Q:
    if _GROUP.fullmatch(word):
        return Q(**{f"{path}as_id": _USER_AS_BLOCK | int(word, 16)})
    match = _PREFIX.fullmatch(word.replace("_", ":"))
    if match is None:
        return Q(pk__in=[])
    isd, high, middle = match.groups()
    low = int(high, 16) << 32 | int(middle or "0", 16) << 16
    size = 1 << 16 if middle else 1 << 32
    query = Q(**{f"{path}as_id__gte": low, f"{path}as_id__lt": low + size})
    return query & Q(**{f"{path}isd__isd_id": int(isd)}) if isd and int(isd) <= MAX_ISD else query


class FoundByAs:
    """Mixin for a list that is searched by AS; see `search_query`. Put it before the admin class."""

    search_fields: Any = ["pk"]  # makes the search box appear
    as_paths: Sequence[str]
    search_text: Sequence[str]
    search_ips: Sequence[str] = ()

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        query = search_query(search_term, as_paths=self.as_paths, text=self.search_text, ips=self.search_ips)
        # A subquery: a join would multiply the counts of the list.
        return queryset.filter(pk__in=queryset.model._base_manager.filter(query).values("pk")), False


def search_query(term: str, *, as_paths: Sequence[str], text: Sequence[str], ips: Sequence[str] = ()) -> Q:
    """Build the condition that every word of `term` matches: an AS at one of `as_paths`, an address in `ips`, or part
    of a `text` column."""
    query = Q()
    for word in term.split():
        found = [as_query(word, path) for path in as_paths]
        found += [Q(**{f"{name}__icontains": word}) for name in text]
        found += _ip_queries(word, ips)
        query &= reduce(or_, found)
    return query


def _ip_queries(word: str, ips: Sequence[str]) -> list[Q]:
    try:
        whole = str(parse_ip(word))  # normalized, as in the database
    except RuleError:
        # Part of an address. Only its characters are allowed, so that "de" does not match 2001:db8::de.
        if not re.fullmatch(r"[0-9a-fA-F.:]*[.:][0-9a-fA-F.:]*", word, flags=re.ASCII):
            return []
        return [Q(**{f"{name}__startswith": word.lower()}) for name in ips]
    return [Q(**{name: whole}) for name in ips]
