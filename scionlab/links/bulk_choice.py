"""Selection of Links for a bulk change: by attachment point, user AS, owner and limit, or by key."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import F, Q, QuerySet
from django.db.models.functions import Coalesce, Greatest

from bandwidth_config import RuleError, format_kbit
from scionlab.models import AttachmentPoint, Link
from scionlab.models.locks import storable_ids
from scionlab.models.selectors import USER_LINKS
from scionlab.notation.isd_as import parse_as_id, parse_isd_as


@dataclass(frozen=True)
class Choice:
    """Selects Links that match all criteria; without any, every Link. `user_as` is an ISD-AS, an AS number or part of
    the label; `owner` part of the email address; `above_kbit`: at least one direction is higher; `only` are keys of
    Links."""

    attachment_point: AttachmentPoint | None = None
    user_as: str = ""
    owner: str = ""
    above_kbit: int | None = None
    only: frozenset[int] | None = None

    def links(self) -> QuerySet[Link]:
        """Ordered by attachment point and AS."""
        links = Link.objects.filter(USER_LINKS)
        if self.only is not None:
            links = links.filter(pk__in=storable_ids(self.only))
        if self.attachment_point is not None:
            links = links.filter(interface_a__AS__attachment_point=self.attachment_point)
        if self.owner:
            links = links.filter(interface_b__AS__useras__owner__email__icontains=self.owner)
        if self.user_as:
            links = links.filter(as_named(self.user_as.strip(), "interface_b__AS__"))
        if self.above_kbit is not None:
            highest = Greatest("bandwidth_kbit", Coalesce("from_user_kbit", F("bandwidth_kbit")))
            links = links.annotate(highest_kbit=highest).filter(highest_kbit__gt=self.above_kbit)
        return links.order_by("interface_a__AS__as_id", "interface_b__AS__as_id", "pk")

    def link_ids(self) -> list[int]:
        return list(self.links().order_by("pk").values_list("pk", flat=True))

    @property
    def words(self) -> str:
        """Description for the record of the change."""
        parts = [
            f"at {self.attachment_point.AS.isd_as}" if self.attachment_point else "",
            f"of owners with {self.owner}" if self.owner else "",
            f"of AS {self.user_as}" if self.user_as else "",
            "" if self.above_kbit is None else f"above {format_kbit(self.above_kbit)}",
        ]
        said = ", ".join(part for part in parts if part)
        if self.only is not None:
            return f"selected links{', ' + said if said else ''}"
        return f"all links {said}" if said else "all links"


def as_named(text: str, at: str = "") -> Q:
    """ASes with this ISD-AS, AS number or part of the label. `at` is the lookup prefix of the AS; empty: the rows are
    ASes."""
    try:
        isd, as_id = parse_isd_as(text)
    except RuleError:
        pass
    else:
        return Q(**{f"{at}isd__isd_id": isd, f"{at}as_id": as_id})
    try:
        return Q(**{f"{at}as_id": parse_as_id(text)})
    except RuleError:
        return Q(**{f"{at}label__icontains": text})
