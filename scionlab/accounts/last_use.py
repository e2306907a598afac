"""Time of last use of API tokens, without a database write per request."""

from typing import Final

from scionlab.platform.last_contact import Contacts, Ledger

TOKENS: Final = Ledger("scionlab.token_used", "accounts_apitoken", "last_used_at")
TOKENS_USED: Final = Contacts(TOKENS)
