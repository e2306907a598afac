"""Password hashing has its own bounded place: real child processes, through every door that hashes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.contrib.auth.hashers import Argon2PasswordHasher, PBKDF2PasswordHasher, check_password, make_password
from django.test import Client
from pytest_django import Settings

from scionlab.accounts.models import User
from scionlab.platform.client_address import from_address
from scionlab.platform.passwords import child, hashers
from scionlab.platform.passwords.place import STUCK_AFTER_S, HashingBusyError, HashingFailedError, Place, is_suspect
from scionlab.platform.passwords.place import place as the_place
from scionlab.settings import base
from tests.factories import UserFactory

PASSWORD = "correct horse battery staple"
DEADLINE_S = 30.0
NEW = {"password1": "y4ht zqpm", "password2": "y4ht zqpm"}


@pytest.fixture(autouse=True)
def libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """pytest adds this folder, whose html.py a process that is spawned would take for the library's."""
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one != str(Path(__file__).parent)])


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> Iterator[Place]:
    """One child, and two who may be there at the same time; the service's real hashers use it."""
    settings.PASSWORD_HASHERS = base.PASSWORD_HASHERS
    made = Place(processes=1, places=2)
    monkeypatch.setattr(hashers, "place", lambda: made)
    yield made
    made.close()


@pytest.fixture
def full(place: Place) -> Iterator[Place]:
    """Both places are taken for as long as the test lasts."""
    with place._admitted(None, False), place._admitted(None, False):
        yield place


def the_pid() -> int:
    """Of the one process that hashes."""
    (process,) = (one for one in multiprocessing.active_children() if one.is_alive())
    assert process.pid is not None
    return process.pid


# --- the hashes -------------------------------------------------------------------------------------------------


def test_new_hashes_are_argon2id_with_the_parameters_of_owasp(place: Place) -> None:
    encoded = make_password(PASSWORD)
    assert encoded.startswith("argon2$argon2id$v=19$m=19456,t=2,p=1$")
    assert (check_password(PASSWORD, encoded), check_password("another", encoded)) == (True, False)
    assert Argon2PasswordHasher().verify(PASSWORD, encoded), "Django's own hasher agrees"


@pytest.mark.django_db
@pytest.mark.parametrize("former", [Argon2PasswordHasher(), PBKDF2PasswordHasher()], ids=["100 MiB", "PBKDF2"])
def test_a_former_hash_works_and_is_replaced_at_log_in(
    place: Place, former: Argon2PasswordHasher | PBKDF2PasswordHasher
) -> None:
    user = UserFactory()
    User.objects.filter(pk=user.pk).update(password=former.encode(PASSWORD, "a salt of twenty two c"))
    wrong = Client().post("/login/", {"username": user.email, "password": "another"})
    assert wrong.status_code == 200, "asked again"
    answer = Client().post("/login/", {"username": user.email, "password": PASSWORD})
    assert answer.status_code == 302
    user.refresh_from_db()
    assert user.password.startswith("argon2$argon2id$v=19$m=19456,t=2,p=1$")
    assert Client().post("/login/", {"username": user.email, "password": PASSWORD}).status_code == 302


# --- the place --------------------------------------------------------------------------------------------------


def test_passwords_are_hashed_in_a_niced_process_and_not_in_this_one(place: Place) -> None:
    used_s = time.thread_time()
    for _ in range(5):
        make_password(PASSWORD)
    assert time.thread_time() - used_s < 0.05, "five hashes take four times that"
    assert os.getpriority(os.PRIO_PROCESS, the_pid()) == child.NICENESS + os.getpriority(os.PRIO_PROCESS, 0)


def test_a_child_that_dies_while_it_hashes_is_replaced_once(place: Place) -> None:
    make_password(PASSWORD)
    found: list[str] = []
    killed = the_pid()
    os.kill(killed, signal.SIGSTOP)
    thread = threading.Thread(target=lambda: found.append(make_password(PASSWORD)))
    thread.start()
    time.sleep(0.2)
    assert found == []
    os.kill(killed, signal.SIGKILL)
    thread.join(DEADLINE_S)
    assert check_password(PASSWORD, found[0])


def test_a_process_that_is_stuck_for_30_s_is_killed_and_its_place_is_free(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert STUCK_AFTER_S == 30.0
    make_password(PASSWORD)
    stopped = the_pid()
    os.kill(stopped, signal.SIGSTOP)
    with monkeypatch.context() as short:
        short.setattr("scionlab.platform.passwords.place.STUCK_AFTER_S", 0.1)
        for _ in range(3):  # there are two places
            with pytest.raises(HashingBusyError):
                make_password(PASSWORD)
    assert check_password(PASSWORD, make_password(PASSWORD))
    assert the_pid() != stopped


@pytest.mark.parametrize(("processors", "workers", "threads", "processes"), [(1, 2, 8, 1), (9, 2, 8, 4), (64, 1, 8, 4)])
def test_the_pools_of_a_machine_leave_a_processor_to_the_pages(
    processors: int,
    workers: int,
    threads: int,
    processes: int,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At least one each; and no more than may wait."""
    settings.WEB_WORKERS, settings.WEB_THREADS = workers, threads
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(processors)))
    made = the_place.__wrapped__()
    assert (made._processes, made._free) == (processes, threads // 2)


def test_who_finds_no_place_is_sent_away_at_once(full: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scionlab.platform.passwords.place.WAIT_S", 3600.0)  # who waits for a child ends the test
    with pytest.raises(HashingBusyError):
        make_password(PASSWORD)


@pytest.mark.django_db
def test_guessers_leave_places_to_networks_without_failures(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two places; whoever failed lately has one of them, and somebody from elsewhere the other."""
    User.objects.bulk_create(
        [User(email="owner@example.org", password=Argon2PasswordHasher().encode(PASSWORD, "s" * 22))]
    )

    def log_in(password: str, address: str) -> int:
        body = {"username": "owner@example.org", "password": password}
        return Client().post("/login/", body, REMOTE_ADDR=address).status_code

    assert log_in("wrong", "2001:db8:1:1::5") == 200
    with place._admitted(None, True):  # a guess that is being hashed
        assert log_in("wrong", "2001:db8:1:2::5") == 503, "of the same /48"
        assert log_in(PASSWORD, "2001:db8:2::5") == 302
    assert log_in("wrong", "2001:db8:1:2::5") == 200


def test_one_network_leaves_the_last_place_to_others_before_it_failed(place: Place) -> None:
    """Two places. A guesser's first passwords come at once, before any of them is known to be wrong."""
    with place._admitted("2001:db8:1::", False):
        for address, status in (("2001:db8:1:ffff::5", 503), ("2001:db8:2::5", 200), ("198.51.100.7", 200)):
            from_address.set(address)
            try:
                make_password(PASSWORD)
                found = 200
            except HashingBusyError:
                found = 503
            finally:
                from_address.set(None)
            assert (address, found) == (address, status)
    assert not place._here, "nothing is kept of who was there"


def test_who_failed_waits_for_those_who_did_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """One process, which is busy: seven guesses have waited for it when somebody else comes."""
    monkeypatch.setattr("scionlab.platform.passwords.place.WAIT_OF_SUSPECTS_S", DEADLINE_S)
    monkeypatch.setattr("scionlab.platform.passwords.place.WAIT_S", DEADLINE_S)
    made, done = Place(processes=1, places=16), list[str]()

    def hash_(name: str) -> None:
        is_suspect.set(name == "guesser")
        made.submit("argon2", {}, "encode", (PASSWORD, "s" * 22))
        done.append(name)

    threads = [threading.Thread(target=hash_, args=(name,)) for name in (*["guesser"] * 7, "honest")]
    with made._process(False):
        for number, thread in enumerate(threads):
            thread.start()
            deadline = time.monotonic() + DEADLINE_S
            while made._free != 15 - number or (number == 7 and not made._first):
                assert time.monotonic() < deadline
                time.sleep(0.01)
    for thread in threads:
        thread.join(DEADLINE_S)
    made.close()
    assert done == ["honest", *["guesser"] * 7]


def test_a_password_that_cannot_be_encoded_harms_nobody_else(place: Place) -> None:
    with pytest.raises(HashingFailedError, match="UnicodeEncodeError"):
        make_password("half a character \ud800")
    first = the_pid()
    assert check_password(PASSWORD, make_password(PASSWORD))
    assert the_pid() == first


def test_a_child_ends_when_its_parent_is_killed() -> None:
    reader, writer = os.pipe()
    parent = os.fork()
    if parent == 0:  # holds the only end of the line, as a worker process of the web tier does
        try:
            made = Place(processes=1, places=1)
            hashers.place = lambda: made  # type: ignore[assignment]
            hashers.Argon2Hasher().encode(PASSWORD, "saltsaltsalt")
            os.write(writer, str(the_pid()).encode())
            signal.pause()
        finally:
            os._exit(1)
    os.close(writer)
    started = int(os.read(reader, 20))
    os.close(reader)
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    deadline = time.monotonic() + DEADLINE_S
    while Path(f"/proc/{started}").exists() and "\nState:\tZ" not in Path(f"/proc/{started}/status").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# --- the doors --------------------------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize("email", ["owner@example.org", "nobody@example.org"])
def test_a_full_place_is_503_with_a_time_to_return_on_the_page_and_is_no_failed_log_in(full: Place, email: str) -> None:
    User.objects.bulk_create([User(email="owner@example.org", password=Argon2PasswordHasher().encode("x", "s" * 22))])
    for _ in range(7):  # more than the failures that lock
        answer = Client().post("/login/", {"username": email, "password": PASSWORD})
        assert (answer.status_code, int(answer["Retry-After"]) in range(2, 7)) == (503, True)
        assert "Too many people are logging in" in answer.content.decode()
        assert "database" not in answer.content.decode()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("url", "data"),
    [
        ("/account/delete/", {"password": PASSWORD}),
        ("/admin/accounts/user/add/", {"email": "new@example.org", "as_quota": "5", **NEW}),
    ],
)
def test_every_door_that_hashes_is_bounded_and_changes_nothing_when_there_is_no_place(
    full: Place, url: str, data: dict[str, str]
) -> None:
    person = User(email="admin@example.org", is_staff=True, is_superuser=True)
    person.password = Argon2PasswordHasher().encode(PASSWORD, "s" * 22)
    person.save()
    browser = Client()
    browser.force_login(person)
    before = list(User.objects.values())
    assert browser.post(url, data).status_code == 503
    after = list(User.objects.values())
    assert after == before
