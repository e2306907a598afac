"""Certificates and keys on the pages of an ISD and an AS: expiry, and renewal. No key is shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import URLPattern, reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from bandwidth_config import RuleError
from scionlab.platform.clock import database_now
from scionlab.scion_config.chain import as_new_keys
from scionlab.scion_config.credentials import in_use
from scionlab.scion_config.pki import trc as trcs
from scionlab.scion_config.pki.certificates import Kind, isd_as_of
from scionlab.testbed.models import AS, ISD
from scionlab.web.admin.base import ServiceAdmin, actor_of, reason_of
from scionlab.web.admin.columns import NOTHING, badge


def table(head: Iterable[str], rows: Iterable[Sequence[object]]) -> str:
    """Small HTML table for the page of an object; "none" without rows."""
    cells = (format_html_join("", "<td>{}</td>", ((cell,) for cell in row)) for row in rows)
    body = format_html_join("", "<tr>{}</tr>", ((row,) for row in cells))
    if not body:
        return "none"
    top = format_html_join("", "<th>{}</th>", ((cell,) for cell in head))
    return format_html('<table class="slb-links"><thead><tr>{}</tr></thead><tbody>{}</tbody></table>', top, body)


def trc_table(isd: ISD) -> str:
    """TRCs of the ISD, newest first, with the voters of the next update."""
    found = list(isd.trcs.select_related("isd").reverse())
    rows: list[tuple[object, ...]] = []
    for row in found:
        policy = trcs.read(bytes(row.content)).policy
        voters = [isd_as_of(one) for one in policy.of_kind(Kind.SENSITIVE).values()]
        decide = f"{', '.join(voters)}; quorum {policy.quorum} of {len(voters)}"
        state = _until(row.not_after) if row == found[0] else badge("quiet", "replaced")
        core = ", ".join(policy.core_ases)
        rows.append((row, f"{row.not_before:%Y-%m-%d}", f"{row.not_after:%Y-%m-%d}", state, core, decide))
    return table(["TRC", "From", "Until", "State", "Core ASes", "Voters"], rows)


def certificate_table(as_: AS) -> str:
    """Certificates of its control service, and of a core AS those of voters, root and CA."""
    rows: list[tuple[object, ...]] = []
    keys = getattr(as_, "keys", None)
    if keys is not None and keys.ca is not None and keys.not_after is not None:
        by = keys.ca.isd_as
        rows.append(("AS certificate", by, f"{keys.not_after:%Y-%m-%d}", _until(keys.not_after)))
    for row in in_use(as_):
        by = "itself" if row.issuer is None else "root"
        rows.append((row.get_kind_display(), by, f"{row.not_after:%Y-%m-%d}", _until(row.not_after)))
    return table(["Certificate of", "Issued by", "Until", "State"], rows) if rows else NOTHING


def _until(at: datetime) -> SafeString:
    return badge("good", "valid") if at > database_now() else badge("bad", "expired")


class KeysPages(ServiceAdmin):
    """The part of the AS admin that renews keys."""

    def get_urls(self) -> list[URLPattern]:
        return [self.own_path("<int:pk>/keys/", self.keys_view, "keys"), *super().get_urls()]

    def keys_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Show the effect; on POST, create new keys."""
        as_ = get_object_or_404(AS.objects.select_related("isd"), pk=pk)
        if request.method != "POST":
            return self.own_page(request, "testbed/as/keys.html", f"New keys for {as_}?", original=as_)
        given = request.POST
        try:
            as_new_keys(
                as_id=pk,
                actor=actor_of(request),
                reason=reason_of(request),
                master="master" in given,
                core="core" in given,
            )
        except RuleError as exc:
            self.message_user(request, exc.message, messages.ERROR)
        else:
            self.log_change(request, as_, "Created new keys.")
            words = f"{as_} has new keys. The host gets them with its next fetch."
            self.message_user(request, words, messages.SUCCESS)
        return HttpResponseRedirect(reverse("admin:testbed_as_change", args=[pk]))
