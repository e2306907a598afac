"""Path metadata on the page of an attachment point that `limits` registered."""

from __future__ import annotations

from django import forms
from django.contrib import admin

from scionlab.limits.admin import AttachmentPointAdmin
from scionlab.paths.path_metadata import checked_metadata
from scionlab.testbed.models import AttachmentPoint
from scionlab.web.admin.base import ReasonForm
from scionlab.web.pages.forms import RuleField

admin.site.unregister(AttachmentPoint)


class MetadataForm(ReasonForm):
    publishes_limits = forms.BooleanField(
        label="Publish limits",
        required=False,
        help_text="This makes the limits of users public: anyone with a SCION path through an active Link of a user "
        "AS here can see its limit (scion showpaths --extended). It is the Link's own limit [kbit/s] as it "
        "is enforced, the lower of both directions; no temporary limit; nothing for a Link at 0 or only observed. "
        "etc/scion/staticInfoConfig.json has it, which SCION's control service reads once, at its start. A changed "
        "limit restarts nothing: it is published after the host's next configuration, and caches delay it by 5 more "
        "minutes. Switching this on or off raises H: SCION restarts on the host of the control service.",
    )
    path_metadata = RuleField(
        checked_metadata,
        label="Path metadata of the operator",
        widget=forms.Textarea(attrs={"class": "vLargeTextField", "rows": 8, "spellcheck": "false"}),
        help_text="JSON in the form of SCION's staticInfoConfig.json: Latency, Bandwidth, Geo, LinkType, Hops by "
        'interface id, and Note. For example {"LinkType": {"1": "direct"}, "Bandwidth": {"1": {"Inter": 1000000}}}. '
        "Where limits are published they take the place of Bandwidth, Inter of the Links of user ASes, also where none "
        "is published (at 0, or only observed); all the rest stays as it is written here. Empty: none. A change raises "
        "H: SCION restarts on the host of the control service.",
    )


@admin.register(AttachmentPoint)
class AttachmentPointWithMetadata(AttachmentPointAdmin):
    form = MetadataForm
    compared = (*AttachmentPointAdmin.compared, "publishes_limits", "path_metadata")
    fields = ["AS", "host", *compared, "reason", "user_links", "vpn", "cockpit"]
    note = f"{AttachmentPointAdmin.note} The two fields of path metadata restart SCION, once for each save."
