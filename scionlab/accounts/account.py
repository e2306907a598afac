"""Accounts: registration, change of address, password reset, closing.

    form submitted ──▶ AccountRequest ──▶ worker checks the address ──▶ Mail ──▶ link ──▶ confirmed
                  (same statements and same response, whether or not the address has an account)

The response reveals nothing about accounts, neither by text nor by timing: the request never reads them. Only the mail
differs, which only the owner of the address reads.
"""

from __future__ import annotations

import ipaddress
import logging
from datetime import timedelta

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Count, Q
from django.views.decorators.debug import sensitive_variables

from bandwidth_config import RuleError
from scionlab.accounts.locks import lock_administrators, lock_user
from scionlab.accounts.mail import mail_of, mails_create
from scionlab.accounts.mail_links import request_of
from scionlab.accounts.models import AccountRequest, Mail, MailKind, User
from scionlab.platform.clock import database_now
from scionlab.platform.field_errors import FieldRuleError
from scionlab.platform.queue import ANSWER_ACCOUNT_REQUEST, queue_after_commit
from scionlab.web.pages.stale_pages import Values, last_admin_change, refuse_stale, values_of

logger = logging.getLogger(__name__)

Purpose = AccountRequest.Purpose

LINK_LIFETIME = timedelta(hours=24)
COUNTED_FOR = timedelta(hours=1)
# Maximum of mails to one address in that time, per purpose. Further requests are dropped silently, so that they
# do not reveal earlier ones.
REQUESTS_PER_EMAIL = 3
# Unconfirmed registrations of the whole site in that time: each is a mail to an address that a stranger typed.
UNCONFIRMED_REGISTRATIONS = 100
# Of an IPv6 /56 and /48, times ACCOUNT_REQUESTS_PER_ADDRESS; with the length of their part in an exploded address.
_WIDER = {"of_56": (2, len("2001:0db8:0001:00")), "of_48": (4, len("2001:0db8:0001"))}


class TooManyRequestsError(RuleError):
    """From this network, whatever the addresses."""

    def __init__(self) -> None:
        text = "Too many email requests from your network address. Try again in an hour."
        super().__init__("account_requests_many", text)


class ManyRegistrationsError(RuleError):
    """On the whole site."""

    def __init__(self) -> None:
        text = (
            f"{UNCONFIRMED_REGISTRATIONS} people asked for an account within an hour and have not confirmed it, which "
            "is as many as this site allows. Try again in an hour, or ask the administrators for an account."
        )
        super().__init__("registrations_many", text)


# --- asking ---------------------------------------------------------------------------------------------------


@transaction.atomic
def account_request_create(*, purpose: Purpose, email: str, network: str | None, user: User | None = None) -> None:
    """Store a request; a worker answers it by mail. `user`: whose address is to change. Three statements, whether or
    not the address has an account. Raises `FieldRuleError` (`registration_closed`, `registration_domain`),
    `TooManyRequestsError`, `ManyRegistrationsError`."""
    email, network = email.lower(), _exploded(network)
    if purpose == Purpose.REGISTER:
        check_registration(email)
    now = database_now()
    lately = AccountRequest.objects.filter(created_at__gt=now - COUNTED_FOR)
    counts = lately.aggregate(
        # Per purpose: requests for accounts in someone's name must not use up their password resets.
        of_email=Count("pk", filter=Q(email=email, purpose=purpose)),
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
        raise ManyRegistrationsError
    # Stored anyway, so that both cases cost the same.
    is_ignored = counts["of_email"] >= REQUESTS_PER_EMAIL
    made = AccountRequest.objects.create(
        purpose=purpose,
        email=email,
        user=user,
        network=network,
        created_at=now,
        expires_at=now + LINK_LIFETIME,
        answered_at=now if is_ignored else None,
    )
    if purpose == Purpose.EMAIL and user is not None and not is_ignored:
        mails_create(
            [
                mail_of(
                    "accounts/mail/email_asked.txt", {"new": email}, key=f"account:{made.pk}:old", recipient=user.email
                )
            ]
        )
    queue_after_commit(ANSWER_ACCOUNT_REQUEST, made.pk)
    logger.info("account.asked request=%s purpose=%s ignored=%s", made.pk, purpose, is_ignored)


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


@transaction.atomic
def account_request_answer(*, request_id: int) -> bool:
    """Create the mail that answers the request; does nothing if it is answered or deleted. Idempotent."""
    rows = AccountRequest.objects.select_for_update(of=("self",), no_key=True)
    request = rows.filter(pk=request_id, answered_at=None).first()
    if request is None:
        return False
    known = User.objects.filter(email=request.email).first()
    template = _template(request, known)
    if request.purpose == Purpose.PASSWORD:
        request.user = known
    if template is not None:
        fields = {"key": f"account:{request.pk}", "recipient": request.email, "request": request}
        mails_create([mail_of(f"accounts/mail/{template}.txt", {"request": request}, **fields)])
    request.answered_at = database_now()
    request.save(update_fields=["answered_at", "user"])
    return True


def _template(request: AccountRequest, known: User | None) -> str | None:
    """Which mail; None for a password reset without an account: strangers cannot cause mails to arbitrary addresses."""
    if request.purpose == Purpose.PASSWORD:
        return "password_reset" if known is not None and known.is_active else None
    if known is not None:
        return "account_exists"
    return "register" if request.purpose == Purpose.REGISTER else "email_confirm"


def account_requests_due(limit: int) -> list[int]:
    """Requests that no worker has answered yet, oldest first."""
    due = AccountRequest.objects.filter(answered_at=None, expires_at__gt=database_now()).order_by("pk")
    return list(due.values_list("pk", flat=True)[:limit])


# --- confirming -----------------------------------------------------------------------------------------------


def _use(token: str, purpose: Purpose) -> AccountRequest:
    """One statement checks and uses the link, so that only one of two concurrent uses succeeds. Raises `RuleError`."""
    request = request_of(token)
    now = database_now()
    if request is not None and request.purpose == purpose:
        good = AccountRequest.objects.filter(pk=request.pk, used_at=None, expires_at__gt=now)
        if good.update(used_at=now) == 1:
            return request
    raise RuleError("link_invalid", "This link has been used or is older than 24 hours. Request a new one.")


def _taken(email: str) -> RuleError:
    return RuleError("account_exists", f"An account with the address {email} already exists. Log in with it.")


@transaction.atomic
@sensitive_variables("token", "password")
def account_create(*, token: str, full_name: str, password: str, time_zone: str = "UTC") -> User:
    """Create the account of the link. Raises `RuleError` (`link_invalid`, `account_exists`, `registration_closed`)."""
    request = _use(token, Purpose.REGISTER)
    check_registration(request.email)  # the rules may have changed since
    try:
        with transaction.atomic():
            user = User.objects.create_user(request.email, password, full_name=full_name, time_zone=time_zone)
    except (ValidationError, IntegrityError) as exc:  # a concurrent use created it
        raise _taken(request.email) from exc
    logger.info("account.created user=%s request=%s", user.pk, request.pk)
    return user


@transaction.atomic
@sensitive_variables("token")
def email_change(*, token: str) -> User:
    """Set the address of the link, and notify the previous one. Raises `RuleError` (`link_invalid`,
    `account_exists`)."""
    request = _use(token, Purpose.EMAIL)
    if request.user is None:
        raise RuleError("link_invalid", "The account of this link was deleted.")
    user = lock_user(request.user.pk)
    former, user.email = user.email, request.email
    try:
        with transaction.atomic():
            user.save(update_fields=["email"])
    except IntegrityError as exc:
        raise _taken(request.email) from exc
    mails_create(
        [
            mail_of(
                "accounts/mail/email_changed.txt",
                {"new": user.email},
                key=f"account:{request.pk}:done",
                recipient=former,
            )
        ]
    )
    logger.info("account.email_changed user=%s request=%s", user.pk, request.pk)
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
    Mail.objects.filter(recipient=user.email, sent_at=None).delete()
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
