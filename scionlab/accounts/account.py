"""Accounts: registration, change of address, password reset, closing.

    form submitted ──▶ Mail ──▶ worker looks at the address and writes it ──▶ link ──▶ confirmed
               (same statements and same response, whether or not the address has an account)

The response reveals nothing about accounts, neither by text nor by timing: the request never reads them. Only the mail
differs, which only the owner of the address reads.
"""

from __future__ import annotations

import ipaddress
import logging
import secrets
from datetime import timedelta

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Count, Q
from django.views.decorators.debug import sensitive_variables

from bandwidth_config import RuleError
from scionlab.accounts.locks import lock_administrators, lock_user
from scionlab.accounts.mail import mail_of, mails_create
from scionlab.accounts.mail_links import good_links, mail_of_link
from scionlab.accounts.models import Mail, MailKind, User
from scionlab.platform.clock import database_now
from scionlab.platform.field_errors import FieldRuleError
from scionlab.platform.queue import SEND_MAIL, queue_after_commit
from scionlab.web.pages.stale_pages import Values, last_admin_change, refuse_stale, values_of

logger = logging.getLogger(__name__)

Purpose = Mail.Purpose

COUNTED_FOR = timedelta(hours=1)
# Maximum of mails to one address in that time, per purpose. Further requests are dropped silently, so that they
# do not reveal earlier ones.
REQUESTS_PER_EMAIL = 3
# Unconfirmed registrations of the whole site in that time: each is a mail to an address that a stranger typed.
UNCONFIRMED_REGISTRATIONS = 100
# Of an IPv6 /56 and /48, times ACCOUNT_REQUESTS_PER_ADDRESS; with the length of their part in an exploded address.
_WIDER = {"of_56": (2, len("2001:0db8:0001:00")), "of_48": (4, len("2001:0db8:0001"))}


class TooManyRequestsError(RuleError):
    """From this network, whatever the addresses; or, with another text, on the whole site."""

    def __init__(self, text: str = "Too many email requests from your network address. Try again in an hour.") -> None:
        super().__init__("account_requests_many", text)


# --- asking ---------------------------------------------------------------------------------------------------


@transaction.atomic
def link_mail_ask(*, purpose: Purpose, email: str, network: str | None, user: User | None = None) -> None:
    """Store a mail with a link, which `mail.mail_send` writes. `user`: whose address is to change. Three statements,
    whether or not the address has an account. Raises `FieldRuleError` (`registration_closed`, `registration_domain`),
    `TooManyRequestsError`."""
    email, network = email.lower(), _exploded(network)
    if purpose == Purpose.REGISTER:
        check_registration(email)
    now = database_now()
    lately = Mail.objects.exclude(purpose="").filter(created_at__gt=now - COUNTED_FOR)
    counts = lately.aggregate(
        # Per purpose: requests for accounts in someone's name must not use up their password resets.
        of_email=Count("pk", filter=Q(recipient=email, purpose=purpose)),
        of_network=Count("pk", filter=Q(network=network)),
        unconfirmed=Count("pk", filter=Q(purpose=Purpose.REGISTER, used_at=None)),
        **{name: Count("pk", filter=Q(network__startswith=network[:length])) for name, (_, length) in _WIDER.items()},
    )
    most = settings.ACCOUNT_REQUESTS_PER_ADDRESS
    is_wide = ":" in network and any(counts[name] >= most * times for name, (times, _) in _WIDER.items())
    if network and (counts["of_network"] >= most or is_wide):
        logger.warning("account.requests_many network=%s", network)
        raise TooManyRequestsError
    if purpose == Purpose.REGISTER and counts["unconfirmed"] >= UNCONFIRMED_REGISTRATIONS:
        logger.warning("account.registrations_many unconfirmed=%s", counts["unconfirmed"])
        raise TooManyRequestsError(
            f"{UNCONFIRMED_REGISTRATIONS} people asked for an account within an hour and have not confirmed it, which "
            "is as many as this site allows. Try again in an hour, or ask the administrators for an account."
        )
    # Stored and queued anyway, so that both cases cost the same.
    is_ignored = counts["of_email"] >= REQUESTS_PER_EMAIL
    made = Mail.objects.create(
        key=f"account:{secrets.token_hex(16)}",
        purpose=purpose,
        recipient=email,
        subject=purpose.label,
        user=user,
        network=network,
        created_at=now,
        sent_at=now if is_ignored else None,
    )
    if purpose == Purpose.EMAIL and user is not None and not is_ignored:
        told = {"key": f"{made.key}:old", "recipient": user.email}
        mails_create([mail_of("accounts/mail/email_asked.txt", {"new": email}, **told)])
    queue_after_commit(SEND_MAIL, made.pk)
    logger.info("account.asked mail=%s purpose=%s ignored=%s", made.pk, purpose, is_ignored)


def _exploded(network: str | None) -> str:
    """With all digits, so that wider networks are its beginnings; empty for an unknown one."""
    return "" if network is None else ipaddress.ip_address(network).exploded


def check_registration(email: str) -> None:
    """Raises `FieldRuleError` (`registration_closed`, `registration_domain`): the same rules for every visitor."""
    if not settings.REGISTRATION_OPEN:
        text = "Registration is closed. Ask the administrators for an account."
        raise FieldRuleError("registration_closed", text, "email")
    domain, allowed = email.rpartition("@")[2], settings.REGISTRATION_DOMAINS
    if allowed and domain not in allowed:
        text = f"Addresses of {domain} cannot register. Use one of {', '.join(allowed)}, or ask the administrators."
        raise FieldRuleError("registration_domain", text, "email")


# --- confirming -----------------------------------------------------------------------------------------------


@sensitive_variables("token")
def _asked(token: str, purpose: Purpose) -> Mail:
    """Raises `RuleError`."""
    mail = mail_of_link(token)
    if mail is None or mail.purpose != purpose:
        raise _link_invalid()
    return mail


def _use(mail: Mail) -> None:
    """One statement checks and uses the link, so that only one of two concurrent uses succeeds. Raises `RuleError`."""
    if good_links().filter(pk=mail.pk).update(used_at=database_now()) == 0:
        raise _link_invalid()


def _link_invalid() -> RuleError:
    return RuleError("link_invalid", "This link has been used or is older than 24 hours. Request a new one.")


def _taken(email: str) -> RuleError:
    return RuleError("account_exists", f"An account with the address {email} already exists. Log in with it.")


@transaction.atomic
@sensitive_variables("token", "password")
def account_create(*, token: str, full_name: str, password: str, time_zone: str = "UTC") -> User:
    """Create the account of the link. Raises `RuleError` (`link_invalid`, `account_exists`, `registration_closed`)."""
    mail = _asked(token, Purpose.REGISTER)
    check_registration(mail.recipient)  # the rules may have changed since
    _use(mail)
    try:
        with transaction.atomic():
            user = User.objects.create_user(mail.recipient, password, full_name=full_name, time_zone=time_zone)
    except (ValidationError, IntegrityError) as exc:  # a concurrent use created it
        raise _taken(mail.recipient) from exc
    logger.info("account.created user=%s mail=%s", user.pk, mail.pk)
    return user


@transaction.atomic
@sensitive_variables("token")
def email_change(*, token: str) -> User:
    """Set the address of the link, and notify the previous one. Raises `RuleError` (`link_invalid`,
    `account_exists`)."""
    mail = _asked(token, Purpose.EMAIL)
    if mail.user is None:
        raise RuleError("link_invalid", "The account of this link was deleted.")
    user = lock_user(mail.user.pk)
    _use(mail)
    former, user.email = user.email, mail.recipient
    try:
        with transaction.atomic():
            user.save(update_fields=["email"])
    except IntegrityError as exc:
        raise _taken(mail.recipient) from exc
    told = {"key": f"{mail.key}:done", "recipient": former}
    mails_create([mail_of("accounts/mail/email_changed.txt", {"new": user.email}, **told)])
    logger.info("account.email_changed user=%s mail=%s", user.pk, mail.pk)
    return user


# --- keeping --------------------------------------------------------------------------------------------------


@transaction.atomic
def profile_update(*, user_id: int, full_name: str, time_zone: str, mail_opt_outs: list[str]) -> User:
    """Raises `ValidationError` (`time_zone_unknown`, `mail_kind_unknown`)."""
    user = lock_user(user_id)
    user.full_name, user.time_zone, user.mail_opt_outs = full_name, time_zone, sorted(mail_opt_outs)
    user.clean_fields(exclude=["password", "email"])
    user.save(update_fields=["full_name", "time_zone", "mail_opt_outs"])
    return user


@transaction.atomic
def mail_opt_out(*, user_id: int, kind: MailKind) -> None:
    """Unsubscribe from this kind. Does nothing if the account is deleted or unsubscribed."""
    user = User.objects.select_for_update(no_key=True).filter(pk=user_id).first()
    if user is not None and kind not in user.mail_opt_outs:
        user.mail_opt_outs = sorted({*user.mail_opt_outs, kind.value})
        user.save(update_fields=["mail_opt_outs"])
        logger.info("account.mail_opt_out user=%s kind=%s", user_id, kind)


@transaction.atomic
def account_update(*, user_id: int, values: Values, shown: Values | None = None) -> None:
    """Store values set by administrators: any of `email`, `full_name`, `as_quota`, `is_staff`, `is_active`. `shown`:
    values that the page showed, see `web.pages.stale_pages`. Raises `RuleError` (`account_last_administrator`),
    `StalePageError`, `User.DoesNotExist`."""
    user = lock_administrators(user_id)
    was_administrator = is_administrator(user)
    stored = values_of(user, tuple(values))
    refuse_stale(shown=shown, stored=stored, wanted=values, last=lambda: last_admin_change(user))
    for name, value in values.items():
        setattr(user, name, value)
    if was_administrator and not is_administrator(user):
        _check_another_administrator_stays(user)
    user.save(update_fields=[name for name in values if values[name] != stored[name]])


@transaction.atomic
def account_delete(*, user_id: int) -> None:
    """Delete an account. Its changes stay in the audit log, with its address. Raises `RuleError` (`account_has_ases`,
    `account_last_administrator`), `User.DoesNotExist`."""
    user = lock_administrators(user_id)  # creating an AS for this user also locks this row
    names = [one.isd_as for one in user.user_ases.select_related("isd").order_by("as_id")]
    if names:
        text = f"{user.email} still owns {', '.join(names)}. Delete these ASes first."
        raise RuleError("account_has_ases", text)
    if is_administrator(user):
        _check_another_administrator_stays(user)
    unsent = (Q(user=user) | Q(recipient=user.email)) & Q(sent_at=None)
    Mail.objects.filter(unsent | Q(user=user) & ~Q(purpose="")).delete()
    user.delete()
    logger.info("account.deleted user=%s", user_id)


def is_administrator(user: User) -> bool:
    """Whether the account can use the administrators' pages; False if disabled."""
    return user.is_staff and user.is_active


def other_administrators(user: User) -> bool:
    """Whether there is another one; call it under `lock_administrators`."""
    return User.objects.filter(is_staff=True, is_active=True).exclude(pk=user.pk).exists()


def _check_another_administrator_stays(user: User) -> None:
    if not other_administrators(user):
        text = f"{user.email} is the only administrator. Make another account an administrator first."
        raise RuleError("account_last_administrator", text)
