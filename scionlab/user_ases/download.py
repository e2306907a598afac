"""The download of the configuration of a user AS, for page and API."""

from __future__ import annotations

import logging

from django.http import HttpResponse

from bandwidth_config import RuleError
from scionlab.delivery.render import user_download
from scionlab.testbed.models import UserAS

logger = logging.getLogger(__name__)

UNAVAILABLE = "The configuration cannot be created: an administrator has to resolve a problem."


def download_of(user_as: UserAS) -> HttpResponse | None:
    """The configuration of the AS's host, which contains the host's secret; None if it is `UNAVAILABLE`: the owner
    cannot correct that, and should not see details."""
    try:
        name, content = user_download(user_as)
    except RuleError as exc:
        logger.error("download.refused as=%s code=%s %s", user_as.isd_as, exc.code, exc.message)
        return None
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return HttpResponse(content, content_type="application/gzip", headers=headers)
