"""Models."""

from scionlab.accounts.models.api_token import ApiToken
from scionlab.accounts.models.mail import Mail
from scionlab.accounts.models.user import MailKind, User

__all__ = ["ApiToken", "Mail", "MailKind", "User"]
