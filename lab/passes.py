"""`python -m lab.passes`: what the page of a Link and a save of its limits pass through.

One Link on SQLite in a folder of its own, requests by Django's test client in this process. Counted are functions of
`scionlab/` that are called at least once by a request that is not the first of its kind (without lambdas and
comprehensions), their modules, and the apps of these. SCIONLAB_EXTENSIONS chooses the extensions, as for the service.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from types import FrameType

SERVICE = Path(__file__).resolve().parents[1] / "scionlab"


@dataclass(frozen=True)
class Passed:
    """`functions`: name of the module below `scionlab`, and qualified name in it."""

    functions: frozenset[tuple[str, str]]

    @property
    def modules(self) -> set[str]:
        return {module for module, _ in self.functions}

    @property
    def apps(self) -> set[str]:
        return {module.partition(".")[0] for module in self.modules}


def passed(call: Callable[[], None]) -> Passed:
    """Functions of the service that `call` enters, in this thread."""
    found = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(f"{SERVICE}/") and not code.co_name.startswith("<"):
            module = Path(code.co_filename).relative_to(SERVICE).with_suffix("")
            found.add((".".join(module.parts), code.co_qualname))

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return Passed(frozenset(found))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"DJANGO_SETTINGS_MODULE": "scionlab.settings.test", "SCIONLAB_VAR": folder}
        os.environ.pop("DATABASE_URL", None)
        os.environ.pop("REDIS_URL", None)
        found = _measured()
    print(f"{'':<12}{'functions':>10}{'modules':>10}{'apps':>6}")
    for name, one in found.items():
        print(
            f"{name:<12}{len(one.functions):>10}{len(one.modules):>10}{len(one.apps):>6}  {' '.join(sorted(one.apps))}"
        )


def _measured() -> dict[str, Passed]:
    import django  # noqa: PLC0415  with the settings of `main`

    django.setup()

    from django.core.management import call_command  # noqa: PLC0415  models can be imported from here on
    from django.test import Client  # noqa: PLC0415

    from scionlab.accounts.models import User  # noqa: PLC0415
    from scionlab.testbed.infrastructure import attachment_point_create, infrastructure_as_create  # noqa: PLC0415
    from scionlab.testbed.models import Link, UserAS  # noqa: PLC0415
    from scionlab.user_ases.attachments import AttachmentSpec  # noqa: PLC0415
    from scionlab.user_ases.user_as import user_as_create  # noqa: PLC0415

    call_command("migrate", verbosity=0)
    owner = User.objects.create_user("owner@example.org", "of-the-figures-17")
    as_ = infrastructure_as_create(
        isd=17, as_text="ffaa:0:1107", label="ETHZ-AP", is_core=False, public_ipv4="192.0.2.7", public_ipv6=None
    )
    ap = attachment_point_create(as_=as_, default_bandwidth_kbit=None, vpn_subnet=None)
    user_as_create(
        owner=owner,
        actor=owner,
        label="Home lab",
        installation_type=UserAS.Installation.DEDICATED,
        attachments=[AttachmentSpec(attachment_point_id=ap.pk, public_ip="203.0.113.10")],
    )
    link = Link.objects.get(interface_b__AS__useras__owner=owner)
    page = f"/ases/{link.interface_b.AS_id}/links/{link.pk}/"
    client = Client()
    client.force_login(owner)

    def show() -> None:
        _expect(client.get(page).status_code, 200)

    def save(kbit: int) -> Callable[[], None]:
        """As a browser sends the form that the page shows."""
        inputs = re.findall(r"<input\b[^>]*>", client.get(page).content.decode())
        typed = {}
        for one in inputs:
            name, value = (re.search(rf'\b{which}="([^"]*)"', one) for which in ("name", "value"))
            if name is not None and name[1].startswith(f"link-{link.pk}-"):
                typed[name[1]] = "" if value is None else unescape(value[1])
        typed[f"link-{link.pk}-bandwidth_kbit"] = str(kbit)
        return lambda: _expect(client.post(f"{page}bandwidth/", typed).status_code, 302)

    show()
    save(300)()
    found = {"page": passed(show), "save": passed(save(400))}
    link.refresh_from_db()
    _expect(link.requested.to_user_kbit, 400)
    return found


def _expect(found: int, wanted: int) -> None:
    if found != wanted:
        raise SystemExit(
            f"{found} instead of {wanted}: the page or the form of a Link is not as this program knows it."
        )


if __name__ == "__main__":
    main()
