"""Time of last contact with hosts, without a database write per poll."""

from typing import Final

from scionlab.platform.last_contact import Contacts, Ledger

HOSTS: Final = Ledger("scionlab.seen", "testbed_host", "last_seen_at")
CONTACTS: Final = Contacts(HOSTS)
