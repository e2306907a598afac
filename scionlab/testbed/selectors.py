"""Reads across relations, each with a constant number of SQL statements."""

from __future__ import annotations

import re
from collections.abc import Iterable

from django.contrib.auth.models import AnonymousUser
from django.db.models import F, Prefetch, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce, Least
from django.http import Http404

from bandwidth_config import RuleError
from contract.link_rules import with_exception
from scionlab.accounts.models import User
from scionlab.platform.notation.isd_as import parse_isd_as
from scionlab.testbed.models import (
    AttachmentPoint,
    BandwidthPolicy,
    Host,
    Interface,
    Link,
    ServiceState,
    TimedLimit,
    UserAS,
)
from scionlab.web.admin.search import exact_as
from scionlab.web.typed import typed_keys

LINK_RELATIONS = [
    f"interface_{end}__{path}" for end in "ab" for path in ("AS__isd", "AS__useras", "border_router", "host")
]
LINK_RELATIONS += [
    "interface_a__AS__attachment_point__host",
    "interface_a__host__receipt",
    "interface_b__vpn_client__vpn",
    "enforcement",
]


# The lower of both directions [kbit/s] (`Limits.lowest_kbit`).
LOWEST_KBIT = Least("bandwidth_kbit", Coalesce("from_user_kbit", F("bandwidth_kbit")))

# Links that attachment points limit: the attachments of user ASes.
USER_LINKS = Q(
    type=Link.Type.PROVIDER,
    interface_b__AS__useras__isnull=False,
    interface_a__AS__attachment_point__isnull=False,
)

# Read by the judgement, to be prefetched with Links.
TIMED_LIMITS = Prefetch("timed_limits", queryset=TimedLimit.objects.filter(cancelled_at=None, retired_at=None))


# The generation as a column, without its own statement.
GENERATION = {"service_generation": Subquery(ServiceState.objects.filter(pk=1).values("generation"))}


def with_relations(links: QuerySet[Link]) -> QuerySet[Link]:
    """With everything that `enforcement.status` reads: one additional statement for any number of Links."""
    rows = links.select_related(*LINK_RELATIONS).prefetch_related(TIMED_LIMITS)
    return rows.annotate(**GENERATION)


def limited_links(host_id: int, of: Q | None = None) -> dict[int, Link]:
    """The Links of user ASes that this host limits, by interface id, ordered by key; `of`: only these Links. Two SQL
    statements, one if there are none."""
    links = Link.objects.filter(USER_LINKS, of or Q(), interface_a__host_id=host_id)
    related = ("interface_a__AS__attachment_point", "interface_a__AS__isd", "interface_a__host")
    owner = ("interface_b__AS__isd", "interface_b__AS__useras__owner")
    rows = links.select_related(*related, *owner).prefetch_related(TIMED_LIMITS).annotate(**GENERATION).order_by("pk")
    return {link.interface_a.interface_id: link for link in rows}


def policy() -> BandwidthPolicy:
    """The policy of the site; created if missing."""
    return BandwidthPolicy.objects.get_or_create(pk=1)[0]


def generation() -> int:
    """G of every version string."""
    return ServiceState.objects.get_or_create(pk=1)[0].generation


def generation_beside(link: Link) -> int:
    """As `generation`; no SQL statement for a Link of `with_relations`."""
    found: int | None = getattr(link, "service_generation", None)
    return generation() if found is None else found


def host_named(written: str) -> Host | None:
    """The host with this host id or key, or of the AS with this ISD-AS: its attachment point's, or its only one."""
    hosts = Host.objects.select_related("AS__isd")
    try:
        isd, as_id = parse_isd_as(written)
    except RuleError:
        by_key = Q(pk=written) if re.fullmatch(r"[0-9]{1,18}", written, flags=re.ASCII) else Q()
        return hosts.filter(Q(uid=written) | by_key).first()
    found = list(hosts.filter(AS__as_id=as_id, AS__isd__isd_id=isd).select_related("attachment_point"))
    chosen = [host for host in found if hasattr(host, "attachment_point")] or found
    return chosen[0] if len(chosen) == 1 else None


def hosts_of(ases: Iterable[UserAS]) -> dict[int, Host]:
    """The host of each user AS, by key of the AS, with the state of its SCION files; one statement."""
    hosts = Host.objects.filter(AS__in=[one.pk for one in ases]).select_related("installed_files").order_by("-pk")
    return {host.AS_id: host for host in hosts if host.AS_id is not None}


def hosts_of_vpn_clients(server_host_id: int) -> set[int]:
    """Hosts whose configuration names the VPN server of this host: clients with keys and an active Link."""
    ends = Interface.objects.filter(vpn_client__vpn__host=server_host_id, vpn_client__keys__isnull=False)
    return set(ends.filter(link_as_b__active=True).values_list("host", flat=True))


def isds_of_others() -> set[int]:
    """ISDs (primary keys) with core ASes whose hosts all have limits only: another service manages their keys."""
    hosts = Host.objects.filter(AS__is_core=True)
    ours = hosts.filter(limits_only=False).values("AS__isd")
    return set(hosts.exclude(AS__isd__in=ours).values_list("AS__isd", flat=True))


# Hosts with SCION files of another coordination service, for an administrator to decide.
HAS_FILES_OF_OTHERS = Q(installed_files__owner="other", installed_files__taken_over_at=None, limits_only=False)


def hosts_of_others() -> QuerySet[Host]:
    """Hosts for which an administrator has to decide."""
    return Host.objects.filter(HAS_FILES_OF_OTHERS).order_by("pk")


def hosts_ahead() -> QuerySet[Host]:
    """Hosts that proved to have something newer than this database, or different content of the same version. A backup
    was restored. Until the generation is raised above it, their agents reject older configurations."""
    now = ServiceState.objects.filter(pk=1).values("generation")
    return Host.objects.filter(ahead_generation__gte=Coalesce(Subquery(now), 1)).order_by("pk")


def open_attachment_points() -> QuerySet[AttachmentPoint]:
    """Where a user AS can attach, ordered by ISD-AS; one statement."""
    related = ("AS__isd", "AS__useras", "host__vpn", "host__installed_files")
    return AttachmentPoint.objects.select_related(*related).order_by("AS__isd__isd_id", "AS__as_id")


def default_in_force(ap: AttachmentPoint | None, site: BandwidthPolicy | None = None) -> int:
    """Default of the attachment point [kbit/s]: initial value and maximum of a new Link. `site`: the policy, if it is
    read already."""
    own = None if ap is None else ap.default_bandwidth_kbit
    return (site or policy()).default_bandwidth_kbit if own is None else own


def maximum_in_force(link: Link, site: BandwidthPolicy | None = None) -> int:
    """Maximum of the Link [kbit/s]: the default in force at its attachment point, or an exception above it."""
    return with_exception(default_in_force(link.attachment_point, site), link.exception_kbit)


# --- a user's ASes ------------------------------------------------------------------------------------------


def user_ases_of(user: User) -> list[UserAS]:
    """The user's ASes with their Links (for `links_of`); three statements for any number."""
    ases = list(UserAS.objects.filter(owner=user).select_related("isd", "owner").order_by("as_id"))
    by_as = links_by_as(ases)
    for as_ in ases:
        as_._links = by_as[as_.pk]  # type: ignore[attr-defined]  # read by links_of alone
    return ases


def user_as_of(user: User | AnonymousUser, pk: int) -> UserAS:
    """The AS, if it is this user's or the user is staff. Raises `Http404` otherwise, so that existence is not
    revealed."""
    rows = UserAS.objects.select_related("isd", "owner")
    if not user.is_staff:
        rows = rows.filter(owner_id=user.pk)
    found = rows.filter(pk=pk).first() if user.is_authenticated else None
    if found is None:
        raise Http404("You have no such AS.")
    return found


def link_at(user: User, link_id: object, attachment_point_id: object) -> Link | None:
    """This Link to this attachment point; None if it is not the user's. Staff can access all."""
    keys = typed_keys((str(link_id), str(attachment_point_id)))
    if len(keys) < 2:
        return None
    links = Link.objects.filter(pk=keys[0], interface_a__AS__attachment_point=keys[1])
    return (links if user.is_staff else links.filter(interface_b__AS__useras__owner=user)).first()


def links_of(user_as: UserAS) -> list[Link]:
    """Its Links to attachment points with everything that a page shows, ordered by interface id. Two statements; none
    for an AS of `user_ases_of`."""
    found: list[Link] | None = getattr(user_as, "_links", None)
    return links_by_as([user_as])[user_as.pk] if found is None else found


def links_by_as(ases: Iterable[UserAS]) -> dict[int, list[Link]]:
    """As `links_of`, by key of the AS; two statements for any number."""
    by_as: dict[int, list[Link]] = {as_.pk: [] for as_ in ases}
    links = Link.objects.filter(type=Link.Type.PROVIDER, interface_b__AS__in=list(by_as))
    for link in with_relations(links).order_by("interface_b__AS", "interface_b__interface_id"):
        by_as[link.interface_b.AS_id].append(link)
    return by_as


def as_named(text: str, at: str = "") -> Q:
    """ASes with this ISD-AS, AS number or part of the label. `at` is the lookup prefix of the AS; empty: the rows are
    ASes."""
    return exact_as(text, at) or Q(**{f"{at}label__icontains": text})


def control_service_host(as_id: int) -> Host | None:
    """The first host of the AS, as in topology.json. `as_id` is the AS's primary key."""
    return Host.objects.filter(AS=as_id).order_by("pk").first()
