"""URLs of receipts; `site.apps_urls` adds them to the site's."""

from django.urls import path

from scionlab.enforcement.host_api import enforcement

host_patterns = [
    path("<str:uid>/enforcement", enforcement, name="host_enforcement"),
]
