"""Password hashing has its own bounded place: real child processes, through every door that hashes."""

from __future__ import annotations

import fcntl
import os
import signal
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
from scionlab.platform.passwords.place import HashingBusyError, HashingFailedError, Place, is_suspect
from scionlab.settings import base
from tests.factories import UserFactory

PASSWORD = "correct horse battery staple"
DEADLINE_S = 30.0


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings) -> Iterator[Place]:
    """One child, and two who may be there at the same time; the service's real hashers use it."""
    settings.PASSWORD_HASHERS = base.PASSWORD_HASHERS
    made = Place(processes=1, places=2, folder=tmp_path)
    monkeypatch.setattr(hashers, "place", lambda: made)
    yield made
    made.close()


@pytest.fixture
def full(place: Place) -> Iterator[Place]:
    """Both places are taken for as long as the test lasts."""
    with place._admitted(None, False), place._admitted(None, False):
        yield place


def pid_of(place: Place) -> int:
    process = place._children[0]._process
    assert process is not None
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
    assert os.getpriority(os.PRIO_PROCESS, pid_of(place)) == child.NICENESS + os.getpriority(os.PRIO_PROCESS, 0)


def test_a_child_that_was_killed_is_replaced_and_the_hash_is_made(place: Place) -> None:
    encoded = make_password(PASSWORD)
    killed = pid_of(place)
    os.kill(killed, signal.SIGKILL)
    assert check_password(PASSWORD, encoded)
    assert pid_of(place) != killed


def test_a_child_that_dies_while_it_hashes_is_replaced_once(place: Place, tmp_path: Path) -> None:
    make_password(PASSWORD)
    found: list[str] = []
    with (tmp_path / "hashing-0.lock").open("w") as slot:
        fcntl.flock(slot, fcntl.LOCK_EX)
        thread = threading.Thread(target=lambda: found.append(make_password(PASSWORD)))
        thread.start()
        killed = pid_of(place)
        wait_until_it_waits_for_the_slot(killed)
        os.kill(killed, signal.SIGKILL)
    thread.join(DEADLINE_S)
    assert check_password(PASSWORD, found[0])


def wait_until_it_waits_for_the_slot(pid: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while f"-> FLOCK  ADVISORY  WRITE {pid} " not in Path("/proc/locks").read_text():
        assert time.monotonic() < deadline, Path("/proc/locks").read_text()
        time.sleep(0.01)


def test_of_two_web_processes_one_hashes_at_a_time(place: Place, tmp_path: Path) -> None:
    """The slots are files that the processes of a machine share."""
    make_password(PASSWORD)
    done = threading.Event()
    with (tmp_path / "hashing-0.lock").open("w") as slot:
        fcntl.flock(slot, fcntl.LOCK_EX)
        thread = threading.Thread(target=lambda: (make_password(PASSWORD), done.set()))
        thread.start()
        wait_until_it_waits_for_the_slot(pid_of(place))
        assert not done.is_set()
    thread.join(DEADLINE_S)
    assert done.is_set()


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


def test_who_failed_waits_for_those_who_did_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One child, which is busy: seven guesses have waited for it when somebody else comes."""
    monkeypatch.setattr("scionlab.platform.passwords.place.WAIT_OF_SUSPECTS_S", DEADLINE_S)
    monkeypatch.setattr("scionlab.platform.passwords.place.WAIT_S", DEADLINE_S)
    made, done = Place(processes=1, places=16, folder=tmp_path), list[str]()
    request = {"algorithm": "argon2", "parameters": {}, "method": "encode", "arguments": [PASSWORD, "s" * 22]}

    def hash_(name: str) -> None:
        is_suspect.set(name == "guesser")
        made.submit(request)
        done.append(name)

    threads = [threading.Thread(target=hash_, args=(name,)) for name in ("first", *["guesser"] * 7, "honest")]
    with (tmp_path / "hashing-0.lock").open("w") as slot:
        fcntl.flock(slot, fcntl.LOCK_EX)
        for number, thread in enumerate(threads):
            thread.start()
            deadline = time.monotonic() + DEADLINE_S
            while made._free != 15 - number or (number == 8 and not made._first):
                assert time.monotonic() < deadline
                time.sleep(0.01)
    for thread in threads:
        thread.join(DEADLINE_S)
    made.close()
    assert done == ["first", "honest", *["guesser"] * 7]


def test_a_password_that_cannot_be_encoded_harms_nobody_else(place: Place) -> None:
    with pytest.raises(HashingFailedError, match="UnicodeEncodeError"):
        make_password("half a character \ud800")
    first = pid_of(place)
    assert check_password(PASSWORD, make_password(PASSWORD))
    assert pid_of(place) == first


def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    parent = os.fork()
    if parent == 0:  # holds the only end of the line, as a worker process of the web tier does
        try:
            made = Place(processes=1, places=1, folder=tmp_path)
            hashers.place = lambda: made  # type: ignore[assignment]
            hashers.Argon2Hasher().encode(PASSWORD, "saltsaltsalt")
            os.write(writer, str(pid_of(made)).encode())
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
def test_a_full_place_is_503_in_the_shape_of_the_api(full: Place) -> None:
    body = {"email": "nobody@example.org", "password": PASSWORD, "name": "night job"}
    answer = Client().post("/api/v1/token/", body, content_type="application/json")
    assert (answer.status_code, answer.json()["code"], "Retry-After" in answer) == (503, "unavailable", True)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("url", "data"),
    [
        ("/password/", {"old_password": PASSWORD, "new_password1": "y4ht zqpm", "new_password2": "y4ht zqpm"}),
        ("/account/email/", {"email": "new@example.org", "password": PASSWORD}),
        ("/account/delete/", {"password": PASSWORD}),
        (
            "/admin/accounts/user/add/",
            {"email": "new@example.org", "as_quota": "5", "password1": "y4ht zqpm", "password2": "y4ht zqpm"},
        ),
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
