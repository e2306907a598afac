"""What concerns the limiter alone in accepting documents: its own copies, rubbish, and the agent's folder.

What it accepts when: test_trust_over_time.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ap_agent.common.settings import Settings
from ap_agent.document.signed_text import Version
from ap_agent.document.trust import Acceptance, save_acceptance
from ap_agent.limiter.documents import Documents
from tests.agent_bundles import OTHER_KEY, entry
from tests.limiter_documents import handed
from tests.trust_hosts import LimiterHost, settings_in


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    found = settings_in(tmp_path)
    found.state_dir.mkdir()
    return found


@pytest.fixture
def host(settings: Settings) -> LimiterHost:
    return LimiterHost(settings)


def given(host: LimiterHost, version: str = "1.18", limits: int = 7, **options: Any) -> str:
    return host.offered(version, limits, **options)


def test_without_any_document_nothing_is_wrong_and_nothing_is_written(host: LimiterHost, settings: Settings) -> None:
    assert not host.documents.take()
    assert (host.installed, host.codes) == ("nothing", [])
    assert not settings.limiter_state_dir.exists()


def test_accepted_document_outlives_the_agent_and_all_its_files(host: LimiterHost, settings: Settings) -> None:
    given(host, "1.18", 9)
    for one in settings.state_dir.iterdir():
        one.unlink()
    settings.state_dir.rmdir()
    host.start()
    host.documents.take()

    assert (host.installed, host.codes) == ("1.18 with limits 9", [])
    assert stat.S_IMODE(settings.limiter_state_dir.stat().st_mode) == 0o700


@pytest.mark.parametrize("rubbish", [b"", b"{", b"\xff" * 100, b"[" * 100_000, b'{"schema": 1}'])
def test_rubbish_ends_no_limit_and_is_named(host: LimiterHost, rubbish: bytes) -> None:
    given(host, "1.18", 9)

    assert host.offered_bytes(rubbish) == "refused"
    assert host.installed == "1.18 with limits 9"
    (problem,) = host.problems
    assert (problem.code, problem.subject) == ("document_refused", "document")
    assert problem.message.endswith("The current limits stay.")
    assert given(host, "1.18", 9) == "unchanged"
    assert host.codes == []


def test_folder_in_the_place_of_the_document_is_named(host: LimiterHost, settings: Settings) -> None:
    given(host)
    (settings.state_dir / "document.json").unlink()
    (settings.state_dir / "document.json").mkdir()

    assert not host.documents.take()
    assert "Is a directory" in host.problems[0].message


def test_document_of_a_key_that_the_agent_made_up_is_refused(host: LimiterHost) -> None:
    given(host, "1.18", 9)

    assert given(host, "1.18", 10, signers=(OTHER_KEY,)) == "refused"
    assert given(host, "1.18", 10, host_id="another") == "refused"
    assert given(host, "1.18", 10, is_signed=False) == "refused"


def test_an_acceptance_that_the_agent_writes_for_itself_counts_for_nothing(
    host: LimiterHost, settings: Settings
) -> None:
    given(host, "1.18", 9)
    save_acceptance(settings.state_dir, Acceptance("1.17", Version(1, 18, 9)))

    assert given(host, "1.17", 4) == "refused"


def test_own_copy_that_somebody_deleted_is_written_again(host: LimiterHost, settings: Settings) -> None:
    given(host)
    (settings.limiter_state_dir / "document.json").unlink()
    host.documents.keep()
    host.start()

    assert host.installed == "1.18 with limits 7"


@pytest.mark.parametrize(
    ("replace", "message"),
    [
        (lambda path: path.write_bytes(b"{"), "The stored document {} cannot be used: "),
        (lambda path: path.mkdir(), "The stored document {} cannot be read: Is a directory."),
    ],
    ids=["damaged", "a folder"],
)
def test_unusable_own_copy_is_named_until_another_document_is_accepted(
    replace: Callable[[Path], object], message: str, host: LimiterHost
) -> None:
    given(host)
    path = host.installed_file
    path.unlink()
    replace(path)
    host.start()
    assert (host.installed, host.codes) == ("nothing", ["state_unusable"])
    assert host.problems[0].subject == str(host.folder)
    assert host.problems[0].message.startswith(message.format(path))

    (host.settings.state_dir / "document.json").write_bytes(host.made())
    assert host.documents.take()
    assert host.codes == []


def test_unusable_trust_is_named_until_it_is_stored_anew_without_any_document(host: LimiterHost) -> None:
    given(host)
    host.installed_file.unlink()
    host.trust_file.write_bytes(b"{")
    documents = Documents(host.settings, lambda: host.now)
    documents.load()
    (problem,) = documents.problems
    assert problem.code == "state_unusable"
    assert str(host.trust_file) in problem.message

    documents.keep()
    assert documents.problems == ()
    host.start()
    assert host.codes == []


def test_full_disk_is_named_and_what_was_handed_over_holds(host: LimiterHost, monkeypatch: pytest.MonkeyPatch) -> None:
    given(host, "1.18", 9)

    def full(_descriptor: int) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        write_bytes = handed({"1": entry(900)}, limits=10)
        (host.settings.state_dir / "document.json").write_bytes(write_bytes)
        assert host.documents.take()
        host.documents.keep()
    assert (host.installed, host.codes) == ("1.18 with limits 10", ["state_unusable"])
    host.documents.keep()
    assert host.codes == []
    host.start()
    assert host.installed == "1.18 with limits 10"


def test_a_symbolic_link_in_the_agents_folder_is_not_followed(host: LimiterHost) -> None:
    """The agent could make the limiter read what the agent may not."""
    elsewhere = host.settings.state_dir.parent / "elsewhere.json"
    elsewhere.write_bytes(handed())
    (host.settings.state_dir / "document.json").symlink_to(elsewhere)
    assert not host.documents.take()
    assert host.installed == "nothing"
    (problem,) = host.problems
    assert "it is a symbolic link; name a plain file" in problem.message


def test_refused_documents_are_looked_at_more_and_more_seldom_until_one_is_accepted(host: LimiterHost) -> None:
    rests = []
    for number in range(9):
        assert host.offered_bytes(b"no document %d" % number) == "refused"
        rests.append(host.documents.rest_s)
    assert rests == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 5, 5])
    assert given(host) == "new"
    assert host.documents.rest_s == 0
