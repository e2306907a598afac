"""Lifetimes of certificates and TRCs, and when they are renewed.

Longer than certificates.rst recommends (a root for a year, a CA for a week, an AS for 3 days), since hosts of a testbed
pull their configuration and may be off for weeks. An issuer is renewed as soon as it could not cover a new certificate:
those of a TRC must be valid as long as the TRC (trc.rst, "Certificates"), a root as long as its CAs, a CA as long as
its ASes.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509

from scionlab.scion_config.pki.certificates import Kind, kind_of

TRC_LIFETIME: Final = timedelta(days=365)
TRC_RENEWED_WITH_LEFT: Final = timedelta(days=90)
TRC_GRACE: Final = timedelta(days=7)  # how long chains of the predecessor's roots are accepted

LIFETIME: Final = {
    Kind.SENSITIVE: timedelta(days=5 * 365),
    Kind.REGULAR: timedelta(days=5 * 365),
    Kind.ROOT: timedelta(days=2 * 365),
    Kind.CA: timedelta(days=365),
    Kind.AS: timedelta(days=90),
}

RENEWED_WITH_LEFT: Final = {
    Kind.SENSITIVE: TRC_LIFETIME,
    Kind.REGULAR: TRC_LIFETIME,
    Kind.ROOT: max(TRC_LIFETIME, LIFETIME[Kind.CA]),
    Kind.CA: LIFETIME[Kind.AS],
    Kind.AS: LIFETIME[Kind.AS] / 3,  # a host that is off for a month still has a valid chain
}


RENEWAL_SPREAD: Final = timedelta(days=28)  # of AS certificates, before they must be renewed


def as_renewed_from(not_after: datetime, isd_as: str) -> datetime:
    """Time from which an AS certificate that ends at `not_after` is renewed. 1 to 28 days before two thirds of its
    life, by a hash of the ISD-AS: a renewal restarts SCION on a host."""
    days = int.from_bytes(hashlib.sha256(isd_as.encode()).digest()[:8]) % RENEWAL_SPREAD.days
    return not_after - RENEWED_WITH_LEFT[Kind.AS] - timedelta(days=1 + days)


def needs_renewal(certificate: x509.Certificate, now: datetime) -> bool:
    """Whether the remaining life is below that kind's threshold. Raises `RuleError` (`pki_not_scion`)."""
    return certificate.not_valid_after_utc - now < RENEWED_WITH_LEFT[kind_of(certificate)]
