"""Imports a dump of the database of SCIONLab's own coordination service.

Atomic and idempotent. Imported hosts get limits only, so that their SCION files are never replaced; imported attachment
points begin with observe only (docs/import.md).

    import_rules              entries that break a rule, before anything is written
    import_rows               people, ISDs, ASes, hosts, border routers
    import_attachment_points  VPNs, attachment points, clients of VPNs
    import_trust              TRCs, certificates and keys of SCION, each verified
    import_links              Links with their interfaces; objects that are missing in the dump
    import_state              shared state of these steps
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from django.apps import apps
from django.db import DataError, IntegrityError, transaction

from bandwidth_config import RuleError, check_bandwidth
from scionlab.importer.import_ases import import_ases, import_hosts, import_isds, import_routers, import_users
from scionlab.importer.import_attachment_points import (
    import_attachment_points,
    import_clients,
    import_vpns,
    note_quotas,
)
from scionlab.importer.import_links import import_links, note_gone
from scionlab.importer.import_rules import problems_of
from scionlab.importer.import_state import Import
from scionlab.importer.report import Report
from scionlab.importer.rows import Network
from scionlab.platform.clock import database_now
from scionlab.platform.retry import retried
from scionlab.testbed import locks
from scionlab.testbed.models import Link

logger = logging.getLogger(__name__)


def _import_trust(this: Import) -> None:
    """An installation without SCION files has no tables for their keys."""
    trcs, keys = len(this.network.trcs), len(this.network.keys)
    if apps.is_installed("scionlab.scion_config"):
        from scionlab.importer.import_trust import import_trust  # noqa: PLC0415  its tables are there only then

        import_trust(this)
    elif trcs or keys:
        text = (
            f"{trcs} TRCs and {keys} SCION keys are left out, and VPNs get no keys: this service makes no SCION files"
        )
        this.report.notes.append(f"{text} (SCIONLAB_EXTENSIONS is without scion_config)")


STEPS = (
    ("accounts", import_users),
    ("ISDs", import_isds),
    ("ASes", import_ases),
    ("hosts", import_hosts),
    ("border routers", import_routers),
    ("keys of SCION", _import_trust),
    ("VPNs", import_vpns),
    ("attachment points", import_attachment_points),
    ("VPN clients", import_clients),
)


@retried
def import_scionlab(
    *,
    network: Network,
    kbit: int,
    skip_invalid: bool = False,
    dry_run: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Report:
    """Create and change what the dump contains; new Links of user ASes get `kbit` in both directions.

    If an entry breaks a rule nothing is stored; with `skip_invalid` the rest is, without what depends on it. `dry_run`
    stores nothing. The report is the same in each case. No counter of a new host rises; of others H or L at most once,
    as in `testbed.versions.changes`. Raises `RuleError` (`bandwidth_negative`, `bandwidth_too_high` for `kbit`;
    `import_refused`: the database rejected a row).
    """
    check_bandwidth(kbit)
    try:
        with transaction.atomic():
            report = _import(network, kbit, Report(network.entries, skip_invalid, dry_run), progress)
            if not report.is_stored:
                transaction.set_rollback(True)
    except (IntegrityError, DataError) as exc:  # its text has the whole row, with secrets
        constraint = getattr(getattr(exc.__cause__, "diag", None), "constraint_name", None) or "a constraint"
        text = f"The database refused a row ({constraint}), so nothing was imported. Please report this as a bug."
        raise RuleError("import_refused", text) from None
    logger.info("import.done made=%s changed=%s stored=%s", report.made, report.changes, report.is_stored)
    return report


def _import(network: Network, kbit: int, report: Report, progress: Callable[[str], None]) -> Report:
    progress("checking the rules")
    report.problems += problems_of(network)
    progress(f"{len(report.problems)} entries break one")
    locks.lock_network()
    this = Import(network=network, kbit=kbit, report=report, now=database_now())
    for what, step in STEPS:
        progress(what)
        step(this)
    progress("Links")
    stored = import_links(this)
    note_gone(this)
    note_quotas(this)
    progress("versions of hosts")
    _raise_counters(this, stored)
    return report


def _raise_counters(this: Import, stored: set[int]) -> None:
    raised = this.changes.carry_out(without_hosts=frozenset(this.new_hosts))
    # Owners get no mail about imported Links.
    Link.objects.filter(pk__in=stored).update(is_told=True)
    if raised:
        this.report.notes.append(f"{len(raised)} hosts that were here get a new configuration")
