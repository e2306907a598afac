"""The site default, the defaults of attachment points, and groups of people."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.models import Group
from django.db.models import Count, Q, QuerySet
from django.forms import ModelChoiceField
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html

from scionlab.accounts.models import User
from scionlab.limits import defaults
from scionlab.limits.default_changes import preview_if_felt
from scionlab.limits.default_plan import SITE
from scionlab.limits.exceptions import MOST_MEMBERS, group_members_change
from scionlab.platform.notation.shown import kbit
from scionlab.testbed import infrastructure, selectors
from scionlab.testbed.models import AS, VPN, AttachmentPoint, BandwidthChange, BandwidthPolicy, Link
from scionlab.web.admin.base import ReasonForm, ServiceAdmin, ServiceForm, actor_of, reason_of
from scionlab.web.admin.columns import NOTHING, link_to, link_to_list, linked, marked
from scionlab.web.pages.stale_pages import StalePageError, Value, Values, last_admin_change, refuse_stale
from scionlab.web.typed import typed_keys

DEFAULT = "default_bandwidth_kbit"


class DefaultAdmin(ServiceAdmin):
    """A page with a default. If a new default changes the maximum of existing Links, saving leads to the preview of
    that change, and the default is stored once it is confirmed there; everything else is saved immediately."""

    rule_field = DEFAULT

    def preview(self, request: HttpRequest, key: int, form: Any) -> bool:
        """Whether the default waits for confirmation; then it is not logged as changed."""
        wanted, reason = form.cleaned_data[DEFAULT], form.cleaned_data["reason"]
        made = preview_if_felt(key=key, default_kbit=wanted, actor=actor_of(request), reason=reason)
        if made is None:
            return False
        form.changed_data = [name for name in form.changed_data if name not in {DEFAULT, "reason"}]
        if form.changed_data:
            self.message_user(request, "The other changes on the page were saved.", messages.SUCCESS)
        request._preview = made  # type: ignore[attr-defined]  # read by `response_change`
        return True

    def response_change(self, request: HttpRequest, obj: Any) -> HttpResponse:
        made = getattr(request, "_preview", None)
        if made is None:
            return super().response_change(request, obj)
        return HttpResponseRedirect(reverse("cockpit_defaults_change", args=[made.pk]))


@admin.register(BandwidthPolicy)
class BandwidthPolicyAdmin(DefaultAdmin):
    """A single row; the list page redirects to it."""

    form = ReasonForm
    fields = ["default_bandwidth_kbit", "reason", "attachment_points", "changes"]
    offers = ("change",)
    compared = (DEFAULT,)
    note = (
        "Lowering the default clamps Links above it; the requested limits are kept and apply again "
        "when the default rises again. A default that concerns existing Links is previewed before it is set."
    )

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        row = selectors.policy()
        return HttpResponseRedirect(reverse("admin:testbed_bandwidthpolicy_change", args=[row.pk]))

    @admin.display(description="Applies to")
    def attachment_points(self, obj: BandwidthPolicy) -> str:
        aps = AttachmentPoint.objects.all()
        own = aps.filter(default_bandwidth_kbit__isnull=False).count()
        total = aps.count()
        return link_to_list(
            AttachmentPoint, f"{total - own} of {total} attachment points; {own} have a default of their own"
        )

    @admin.display(description="Changes")
    def changes(self, obj: BandwidthPolicy) -> str:
        kind = BandwidthChange.Kind.SITE_DEFAULT
        history = reverse("cockpit_history", query={"kind": kind.value})
        return format_html('<a href="{}">history of changes</a>', history)

    def save_model(self, request: HttpRequest, obj: BandwidthPolicy, form: Any, change: bool) -> None:
        wanted, reason = form.cleaned_data[DEFAULT], form.cleaned_data["reason"]
        defaults.refuse_older_page(attachment_point_id=None, values={DEFAULT: wanted}, shown=self.shown(request))
        if not self.preview(request, SITE, form):
            defaults.site_default_set(default_bandwidth_kbit=wanted, actor=actor_of(request), reason=reason)


@admin.register(AttachmentPoint)
class AttachmentPointAdmin(DefaultAdmin):
    form = ReasonForm
    list_display = ["isd_as", "label", linked("host"), "default_here", "total"]
    list_display += [marked("observe_only", "observe only"), "user_links", "vpn"]
    search_fields = ["AS__label"]
    compared: tuple[str, ...] = (DEFAULT, "total_kbit", "observe_only")
    note = (
        "Links above the default are clamped to it; the requested limits are kept. A default that concerns existing "
        "Links is previewed before it is set. Only the agent of this host gets a new configuration."
    )
    add_fieldsets = [(None, {"fields": ["AS", "default_bandwidth_kbit", "reason"]})]
    fields = ["AS", "host", *compared, "reason", "user_links", "vpn", "cockpit"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[AttachmentPoint]:
        link = "AS__interfaces__link_as_a"
        mine = Q(**{f"{link}__type": Link.Type.PROVIDER, f"{link}__interface_b__AS__useras__isnull": False})
        rows: QuerySet[AttachmentPoint] = super().get_queryset(request)
        return rows.select_related("AS__isd", "host__AS__isd", "host__vpn").annotate(links=Count(link, filter=mine))

    def formfield_for_foreignkey(
        self, db_field: Any, request: HttpRequest, **kwargs: Any
    ) -> ModelChoiceField[Any] | None:
        if db_field.name == "AS":
            kwargs["queryset"] = (
                AS.objects.filter(attachment_point=None, hosts__isnull=False).select_related("isd").distinct()
            )
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def save_model(self, request: HttpRequest, obj: AttachmentPoint, form: Any, change: bool) -> None:
        actor, reason = actor_of(request), form.cleaned_data["reason"]
        if not change:
            made = infrastructure.attachment_point_create(
                as_=form.cleaned_data["AS"],
                default_bandwidth_kbit=form.cleaned_data[DEFAULT],
                actor=actor,
                reason=reason,
            )
            obj.pk, obj.host, obj.maximum_kbit = made.pk, made.host, made.maximum_kbit
            return
        values = {name: form.cleaned_data[name] for name in self.compared}
        defaults.refuse_older_page(attachment_point_id=obj.pk, values=values, shown=self.shown(request))
        if self.preview(request, obj.pk, form):
            del values[DEFAULT]
        defaults.ap_update(attachment_point_id=obj.pk, values=values, actor=actor, reason=reason)

    def delete_model(self, request: HttpRequest, obj: AttachmentPoint) -> None:
        infrastructure.attachment_point_delete(
            attachment_point_id=obj.pk, actor=actor_of(request), reason=reason_of(request)
        )

    @admin.display(description="ISD-AS", ordering="AS__as_id")
    def isd_as(self, obj: AttachmentPoint) -> str:
        return obj.AS.isd_as

    @admin.display(description="label", ordering="AS__label")
    def label(self, obj: AttachmentPoint) -> str:
        return obj.AS.label

    @admin.display(description="default here", ordering="default_bandwidth_kbit")
    def default_here(self, obj: AttachmentPoint) -> str:
        return "(site default)" if obj.default_bandwidth_kbit is None else kbit(obj.default_bandwidth_kbit)

    @admin.display(description="Links to user ASes", ordering="links")
    def user_links(self, obj: Any) -> str:
        return link_to_list(Link, obj.links, q=obj.AS.isd_as, kind="user")

    @admin.display(description="total", ordering="total_kbit")
    def total(self, obj: AttachmentPoint) -> str:
        return NOTHING if obj.total_kbit is None else kbit(obj.total_kbit)

    @admin.display(description="VPN")
    def vpn(self, obj: AttachmentPoint) -> str:
        vpn: VPN | None = getattr(obj.host, "vpn", None)
        return link_to(vpn, vpn.subnet) if vpn else NOTHING

    @admin.display(description="cockpit")
    def cockpit(self, obj: AttachmentPoint) -> str:
        page, history = reverse("cockpit_ap", args=[obj.pk]), reverse("cockpit_history", query={"ap": obj.pk})
        return format_html('<a href="{}">State, problems and Links</a>, <a href="{}">history</a>', page, history)


class GroupForm(ServiceForm):
    members = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"class": "vLargeTextField", "rows": 8, "spellcheck": "false"}),
        help_text=f"Email addresses of accounts, one a line or divided by commas; up to {MOST_MEMBERS}.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk is not None:
            self.fields["members"].initial = "\n".join(one.email for one in self.instance.user_set.all())

    def clean_members(self) -> list[User]:
        emails = set(re.split(r"[\s,;]+", self.cleaned_data["members"].lower())) - {""}
        if len(emails) > MOST_MEMBERS:
            text = f"A group has up to {MOST_MEMBERS} members; there are {len(emails)}. Create several groups for more."
            raise forms.ValidationError(text, code="group_members")
        found = list(User.objects.filter(email__in=emails))
        unknown = sorted(emails - {one.email for one in found})
        if unknown:
            text = f"No account has the email address {unknown[0][:100]}. Correct it, or remove it."
            raise forms.ValidationError(text, code="member_unknown")
        return found

    def clean_name(self) -> str:
        name = str(self.cleaned_data["name"])
        if Group.objects.filter(name=name).exclude(pk=self.instance.pk).exists():
            raise forms.ValidationError(f"There is a group {name}. Choose another name.", code="unique")
        return name


def _group_values(name: Value, members: Iterable[User]) -> Values:
    """The name, and the keys of the members: who changes the own address changes no group."""
    return {"name": name, **{str(one.pk): True for one in members}}


admin.site.unregister(Group)


@admin.register(Group)
class GroupAdmin(ServiceAdmin):
    """Groups of people, to whom an exception or a policy applies."""

    form = GroupForm
    compared = ("name", "members")
    fields = ["name", "members"]
    search_fields = ["name"]
    note = "A group gives no rights. Exceptions and policies name groups, and end with their group."

    def values_shown(self, obj: Group) -> Values:
        return _group_values(obj.name, obj.user_set.all())

    def labels(self, error: StalePageError) -> dict[str, str]:
        members = User.objects.in_bulk(typed_keys(one.name for one in error.differences))
        return {**super().labels(error), **{str(pk): one.email for pk, one in members.items()}}

    def save_model(self, request: HttpRequest, obj: Group, form: Any, change: bool) -> None:
        members, shown = form.cleaned_data["members"], self.shown(request)
        if change and shown is not None:
            self._refuse_older_page(obj, members, shown)
        obj.save()
        group_members_change(group=obj, members=members, actor=actor_of(request))

    def _refuse_older_page(self, obj: Group, members: Iterable[User], shown: Values) -> None:
        """Compare the page, without accounts that were deleted meanwhile: nobody removed these. Keeps the lock."""
        group = Group.objects.select_for_update(no_key=True).get(pk=obj.pk)
        were = User.objects.in_bulk(typed_keys(key for key, is_member in shown.items() if is_member)).values()
        pages = [_group_values(shown.get("name"), were), self.values_shown(group), _group_values(obj.name, members)]
        names = {name for page in pages for name in page}
        was, stored, wanted = ({name: page.get(name, False) for name in names} for page in pages)
        refuse_stale(shown=was, stored=stored, wanted=wanted, last=lambda: last_admin_change(group))

    def delete_model(self, request: HttpRequest, obj: Group) -> None:
        group_members_change(group=obj, members=[], actor=actor_of(request))
        obj.delete()
