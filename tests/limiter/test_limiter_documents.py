"""What concerns the limiter alone in accepting documents: its own copies, rubbish, and the agent's folder.

What it accepts when: test_trust_over_time.
"""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from ap_agent.common.settings import Settings
from ap_agent.document.signed_text import Version
from ap_agent.document.trust import Acceptance, save_acceptance
from tests.agent_bundles import OTHER_KEY
from tests.agent_clock import settings_in
from tests.limiter_documents import handed
from tests.trust_hosts import LimiterHost


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


def test_a_folder_in_the_place_of_the_own_copy_is_named(host: LimiterHost) -> None:
    given(host)
    host.installed_file.unlink()
    host.installed_file.mkdir()
    host.start()
    assert (host.installed, host.codes) == ("nothing", ["state_unusable"])
    assert f"{host.installed_file} cannot be read: Is a directory." in host.problems[0].message


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
