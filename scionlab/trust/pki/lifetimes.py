"""For how long certificates and TRCs of the testbed are valid, and when they are renewed.

Longer than certificates.rst recommends (a root for a year, a CA for a week, an AS for 3 days), since hosts of a testbed
pull their configuration and may be off for weeks. What covers another one is renewed as soon as it could no longer
cover a new one: the certificates of a TRC must be valid for as long as the TRC (trc.rst, "Certificates"), a root for as
long as its CAs, a CA for as long as its ASes.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509

from scionlab.trust.pki.certificates import Kind, kind_of

TRC_LIFETIME: Final = timedelta(days=365)
TRC_RENEWED_WITH_LEFT: Final = timedelta(days=90)
TRC_GRACE: Final = timedelta(days=7)  # for this long chains of the predecessor's roots are accepted too

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
    """From when on an AS certificate that ends at `not_after` is renewed.

    1 to 28 days before two thirds of its life have gone, by a hash of the ISD-AS: a renewal restarts SCION on a host.
    """
    days = int.from_bytes(hashlib.sha256(isd_as.encode()).digest()[:8]) % RENEWAL_SPREAD.days
    return not_after - RENEWED_WITH_LEFT[Kind.AS] - timedelta(days=1 + days)


def needs_renewal(certificate: x509.Certificate, now: datetime) -> bool:
    """Whether less is left than its kind is renewed with. Raises `RuleError` (`pki_not_scion`)."""
    return certificate.not_valid_after_utc - now < RENEWED_WITH_LEFT[kind_of(certificate)]
