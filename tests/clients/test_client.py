"""The command line client against the real service: what a person types, what they read, and the exit codes."""

from __future__ import annotations

import io
import json
import re
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
from django.core.cache import cache
from django.db import connection
from django.utils import timezone

from bandwidth_config import Limits
from scionlab.accounts.api_token import api_token_create
from scionlab.accounts.models import ApiToken, User
from scionlab.enforcement.models import HostReceipt
from scionlab.limits.update import link_update
from scionlab.linktests.models import LinkTest
from scionlab.linktests.test_results import Upload, result_store
from scionlab.testbed.models import Host, Link, TimedLimit, UserAS
from scionlab.web.models import ApiRequest
from scionlab_bw import client, credentials
from scionlab_bw.__main__ import main
from scionlab_bw.client import Service
from scionlab_bw.errors import Refused, Unreachable
from tests.factories import PASSWORD
from tests.support.polling import WebServer

pytestmark = pytest.mark.django_db(transaction=True)

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.clear()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("TZ", "UTC")
    for name in (credentials.URL_VARIABLE, credentials.TOKEN_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def url(server: WebServer) -> str:
    return f"http://127.0.0.1:{server.port}"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Exit code, standard output, standard error."""

    def do(*arguments: str, typed: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        try:
            code = main(arguments)
        except SystemExit as exc:  # argparse
            code = int(exc.code or 0)
        out, err = capsys.readouterr()
        return code, out.replace("\N{NO-BREAK SPACE}", " "), err.replace("\N{NO-BREAK SPACE}", " ")

    return do


@pytest.fixture
def logged_in(url: str, owner: User) -> str:
    token = api_token_create(user_id=owner.pk, name="client").text
    with credentials.room() as store:
        store(credentials.Credentials(url, token))
    return token


def test_log_in_keeps_a_token_that_only_its_owner_reads_until_log_out(run: Run, url: str, owner: User) -> None:
    code, out, err = run("login", url, typed=f"owner@example.org\n{PASSWORD}\n")
    assert (code, err) == (0, "Email address: ")
    assert out.startswith(f"Logged in at {url} as owner@example.org.")
    file = credentials.path()
    assert (stat.S_IMODE(file.stat().st_mode), stat.S_IMODE(file.parent.stat().st_mode)) == (0o600, 0o700)
    token = json.loads(file.read_text())["token"]
    assert token.startswith("slbwu_")
    assert token not in out
    assert ApiToken.objects.get().name.startswith("scionlab-bw on ")
    file.chmod(0o644)
    assert run("links")[0] == 2
    file.chmod(0o600)
    assert run("logout") == (0, "The token was revoked and deleted.\n", "")
    assert (ApiToken.objects.exists(), file.exists()) == (False, False)


def test_a_day_with_the_client(run: Run, logged_in: str, link: Link, host: Host, receipt: HostReceipt) -> None:
    """Every command, each output as a stranger reads it."""
    name, one = "17-ffaa:1:1", str(link.pk)
    code, out, _ = run("ases")
    assert (code, out.splitlines()[0].split()) == (0, ["ID", "AS", "LABEL", "LINKS", "STATES"])
    assert out.splitlines()[1].split() == [str(link.interface_b.AS_id), name, "Owner's", "AS", "1", "1", "enforced"]
    assert run("links")[1].splitlines()[1].split() == [one, name, "17-ffaa:0:1107", *["1", "000"] * 3, "enforced"]
    assert run("links", "--state", "failed")[1] == "You have no Links in this state.\n"
    shown = run("show", f"{name}@17-ffaa:0:1107")[1]
    assert "Requested   1 000 kbit/s\n" in shown
    assert "State       enforced since 20" in shown
    assert run("wait", one)[:2] == (0, run("wait", name)[1])

    assert run("set", one, "0.5M")[1].startswith("Saved. 500 kbit/s. ")
    assert run("set", name, "--from", "200k")[1].startswith("Saved. 500 kbit/s to the user AS, 200 kbit/s from it. ")
    link.refresh_from_db()
    assert tuple(link.requested) == (500, 200)
    assert run("wait", one, "--timeout", "1s")[0] == 1

    code, out, err = run("set", one, "--to", "100", "--for", "2h")
    assert (code, err) == (0, "")
    assert re.match(
        r"Temporary limit \d+ \(constant, 1 step\) from .* until .*; then 500 kbit/s to the user AS, 200 ", out
    )
    assert tuple(TimedLimit.objects.get().limits.steps[0].limits) == (100, 200)
    assert "Now         100 kbit/s to the user AS, 200 kbit/s from it: constant until" in run("show", one)[1]
    assert "It takes effect when the temporary limit ends, " in run("set", one, "--from", "200k")[1]
    code, _, err = run("profile", one, "outage", "--for", "30s")
    assert (code, "overlap" in err or "until" in err) == (1, True)
    assert run("cancel", one)[1].startswith("Cancelled ")
    assert run("cancel", one)[0] == 1

    square = ("square", "--low", "100k", "--high", "1M/300", "--half-period", "30s", "--cycles", "2")
    assert "(square, 4 steps)" in run("profile", one, *square)[1]
    assert run("timed", one)[1].splitlines()[1].split()[1:3] == ["square", "running"]
    assert run("cancel", one, "--all")[0] == 0
    assert run("timed", one)[1] == "The Link has no temporary limits.\n"
    assert "cancelled" in run("timed", one, "--all")[1]
    stair = ("stair", "--start", "100", "--end", "300", "--steps", "3", "--step", "10s", "--at", "2h")
    assert run("profile", one, *stair)[0] == 2  # 2h is no time
    begins_at = f"{timezone.now() + timedelta(hours=2):%Y-%m-%dT%H:%MZ}"
    assert "(stair, 3 steps)" in run("profile", one, *stair[:-1], begins_at)[1]

    past = run("history", one)[1]
    assert past.splitlines()[0].split() == ["TIME", "BY", "CHANGE", "REASON"]
    assert "owner@example.org" in past
    assert len(past.splitlines()) == 9
    assert run("usage", one)[1] == "No data for this period.\n"
    assert run("usage", one, "--csv", "--last", "30s")[1].startswith("begins_at (UTC),step (s),to_user bytes")
    assert run("watch", one, "--once")[1][8:].startswith(" waiting: 500 kbit/s to the user AS")
    assert run("set", one, "--inactive")[0] == 0
    assert "inactive" in run("links")[1]


def test_rename_gives_an_as_another_label(run: Run, logged_in: str, user_as: UserAS) -> None:
    assert run("rename", "17-ffaa:1:1", "Lab")[:2] == (0, '17-ffaa:1:1 is "Lab".\n')
    assert run("rename", "lab", "")[:2] == (0, "17-ffaa:1:1 is without a label.\n")
    user_as.refresh_from_db()
    assert user_as.label == ""
    code, _, err = run("rename", "nothing", "x")
    assert (code, "`scionlab-bw ases` lists them" in err) == (2, True)


def test_exit_codes_say_who_can_do_something(
    run: Run, logged_in: str, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = str(link.pk)
    assert run("set", one, "120M")[::2] == (
        1,
        "scionlab-bw: Bandwidth 120 000 kbit/s is above this link's maximum of 1 000 kbit/s. Choose "
        "at most 1 000, or ask the administrators to raise it.\n",
    )
    assert run("show", "999999")[::2] == (
        1,
        "scionlab-bw: The object does not exist, or it belongs to another account.\n",
    )
    for wrong in (
        ["set", one, "10 MB/s"],
        ["set", one],
        ["show", "no such"],
        ["nothing"],
        ["set", one, "5", "--to", "5"],
    ):
        assert run(*wrong)[0] == 2, wrong
    ApiToken.objects.update(may_write=False)
    assert run("set", one, "5")[0] == 4
    ApiToken.objects.all().delete()
    assert run("links")[0] == 4
    credentials.forget()
    assert run("links")[0] == 4
    assert run("login", "http://scionlab.example.org")[0] == 2  # in the clear
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        closed = nobody.getsockname()[1]
    monkeypatch.setattr(client, "PATIENCE_S", 0.1)
    with pytest.raises(Unreachable):
        Service(f"http://127.0.0.1:{closed}").get("links/")


def test_somebody_who_was_first_is_not_overruled(logged_in: str, url: str, link: Link, staff: User) -> None:
    service = Service(url, logged_in)
    seen = service.get(f"links/{link.pk}/")
    link_update(link_id=link.pk, limits=Limits.both(700), actor=staff)
    with pytest.raises(Refused, match="The object was changed"):
        service.patch(f"links/{link.pk}/", {"to_user_kbit": 500}, etag=seen.etag)
    assert Link.objects.get(pk=link.pk).bandwidth_kbit == 700


# --- answers that get lost ----------------------------------------------------------------------------------


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The method of each request that reached the service. The answer to the first change is lost."""
    return _lossy(monkeypatch)


def _lossy(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    methods: list[str] = []
    request = requests.Session.request

    def lossy(session: requests.Session, method: str, *more: Any, **named: Any) -> requests.Response:
        answer = request(session, method, *more, **named)
        methods.append(method)
        if method != "GET" and all(one == "GET" for one in methods[:-1]):
            raise requests.ConnectionError("Remote end closed connection without response")
        return answer

    monkeypatch.setattr(requests.Session, "request", lossy)
    return methods


def test_what_got_no_answer_is_sent_again_and_done_once(run: Run, logged_in: str, sent: list[str], link: Link) -> None:
    code, out, err = run("profile", str(link.pk), "outage", "--for", "1m")
    assert (code, err) == (0, "")
    assert sent == ["GET", "POST", "POST"]
    made = TimedLimit.objects.get()
    assert f"Temporary limit {made.pk} " in out
    assert ApiRequest.objects.count() == 1


def test_change_that_got_no_answer_is_no_conflict_with_itself(
    run: Run, logged_in: str, sent: list[str], link: Link
) -> None:
    code, out, err = run("set", str(link.pk), "300")
    assert (code, err) == (0, "")
    assert sent == ["GET", "PATCH", "PATCH"]
    assert out.startswith("Saved. 300 kbit/s.")
    assert link.changes.filter(new_kbit=300).count() == 1


def test_limit_of_all_links_that_got_no_answer_is_no_conflict_with_itself(
    run: Run, logged_in: str, sent: list[str], link: Link
) -> None:
    code, out, err = run("set-all", link.interface_b.AS.isd_as, "300")
    assert (code, err) == (0, "")
    assert out.startswith("Saved. 17-ffaa:0:1107: ")
    assert link.changes.filter(new_kbit=300).count() == 1


def test_label_that_got_no_answer_is_no_conflict_with_itself(
    run: Run, logged_in: str, sent: list[str], link: Link
) -> None:
    assert run("rename", link.interface_b.AS.isd_as, "Other") == (0, '17-ffaa:1:1 is "Other".\n', "")


def test_cancellation_that_got_no_answer_is_done(run: Run, logged_in: str, link: Link, owner: User) -> None:
    run("set", str(link.pk), "100", "--for", "2h")
    with pytest.MonkeyPatch.context() as patch:
        methods = _lossy(patch)
        code, out, err = run("cancel", str(link.pk))
    assert (code, err, methods.count("DELETE")) == (0, "", 2)
    assert out.startswith("Cancelled ")


# --- what is said is so ---------------------------------------------------------------------------------------


def test_start_without_a_length_changes_nothing(run: Run, logged_in: str, link: Link) -> None:
    """A limit for ever from 18:30 on does not exist; it was set at once."""
    code, _, err = run("set", str(link.pk), "300", "--at", "18:30")
    link.refresh_from_db()
    assert (code, tuple(link.requested)) == (2, (1000, 1000))
    assert "--for or --until" in err


def test_temporary_limit_does_not_deactivate(run: Run, logged_in: str, link: Link) -> None:
    code, _, err = run("set", str(link.pk), "300", "--inactive", "--for", "1h")
    assert (code, TimedLimit.objects.exists()) == (2, False)
    assert "--inactive" in err


def test_cancelled_later_limit_says_that_the_present_one_goes_on(run: Run, logged_in: str, link: Link) -> None:
    run("set", str(link.pk), "100", "--for", "1h")
    begins_at = f"{timezone.now() + timedelta(hours=2):%Y-%m-%dT%H:%MZ}"
    run("set", str(link.pk), "200", "--for", "1h", "--at", begins_at)
    later = TimedLimit.objects.latest("pk")
    code, out, _ = run("cancel", str(link.pk), "--id", str(later.pk))
    assert (code, "1 000 kbit/s applies" in out) == (0, False)
    assert out.startswith(f"Cancelled {later.pk}. 100 kbit/s. ")


def test_what_follows_a_temporary_limit_is_at_most_the_maximum(run: Run, logged_in: str, link: Link) -> None:
    ap = link.attachment_point
    ap.default_bandwidth_kbit = ap.maximum_kbit = 400
    ap.save()
    assert "; then 400 kbit/s again." in run("set", str(link.pk), "100", "--for", "1h")[1]
    assert run("cancel", str(link.pk))[1].split(". ")[1] == "400 kbit/s"


def test_nothing_is_no_name_of_a_link_or_an_as(run: Run, logged_in: str, link: Link) -> None:
    """An AS without a label is not meant by an empty variable of a script."""
    UserAS.objects.update(label="")
    assert run("set", "", "300")[0] == 2
    assert run("set", "@17-ffaa:0:1107", "300")[0] == 2
    assert run("set-all", "", "300")[0] == 2
    link.refresh_from_db()
    assert tuple(link.requested) == (1000, 1000)


@pytest.mark.parametrize(("passed", "code", "command"), [(140_000, 0, "path"), (40_000, 1, "watch-load")])
def test_watch_load_prints_each_second_and_ends_with_the_verdict(
    run: Run, logged_in: str, link: Link, host: Host, tmp_path: Path, passed: int, code: int, command: str
) -> None:
    """Of 1000 kbit/s; the attachment point is this test. With `path` it is the one link of a path that is one's own."""
    one, two = link.interface_b, link.interface_a
    (tmp_path / "path").write_text(f"{one.AS.isd_as} {one.interface_id}>{two.interface_id} {two.AS.isd_as}")
    arguments = [str(link.pk)] if command == "watch-load" else [str(tmp_path / "path"), "--test", "watch"]

    def measure() -> None:
        for _ in range(600):
            if (test := LinkTest.objects.first()) is not None:
                break
            time.sleep(0.05)
        assert test is not None
        began_ms = round(test.begins_at.timestamp() * 1000)
        none = ("0" * 16, 1000, 0, 0, 0, 0, 0)
        sides = [("0" * 16, 1000, passed * s, 100 * s, 0, 0, 0) for s in range(6)]
        samples = [(began_ms + 1000 * s, 1000 * s, True, side, none) for s, side in enumerate(sides)]
        result_store(host_id=host.pk, upload=Upload(test.test_id, True, samples))
        connection.close()

    thread = threading.Thread(target=measure)
    thread.start()
    found, out, err = run(command, *arguments, "--for", "5s")
    thread.join()
    assert (found, err) == (code, "")
    lines = out.splitlines()
    assert "\nWatch " in f"\n{out}"
    kbit = "1 120" if code == 0 else "320"
    assert [line[10:] for line in lines[-6:-1]] == [f"to {kbit} of 1 000 kbit/s; from 0 of 1 000 kbit/s"] * 5
    verdict = {0: "Yes: for 5 of 5 s this link was full to your AS; 0 % of what", 1: "No: at most 32 % of the limit"}
    assert lines[-1].startswith(verdict[code])
    assert run("watch-load", str(link.pk), "--for", "4s")[0] == 1
    assert run("watch-load", str(link.pk), "--for", "x")[0] == 2
    if command == "path":
        refused = run(command, *arguments, "--json")
        assert (refused[0], refused[1], "leave out --test" in refused[2]) == (2, "", True)
