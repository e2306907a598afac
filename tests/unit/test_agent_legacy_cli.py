"""`scionlab_bw_limiter`, the command line of the thesis; and both command lines as they are installed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ap_agent.agent.store import Operator, Store
from ap_agent.commands import commands, legacy_cli
from ap_agent.common.errors import AgentError, StoreError
from tests.agent_bundles import entry
from tests.agent_host import ROOT, Host


@pytest.fixture
def host(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(commands, "require_net_admin", lambda: None)  # the fake kernel lets everybody
    return Host(tmp_path, capsys)


# --- the command line of the thesis -----------------------------------------------------------------------------------


def test_l_enforces_the_given_file_and_remembers_it(host: Host) -> None:
    path = host.link_info()

    assert host.limiter("-l", "-p", path) == commands.OK
    assert host.engine.kernel == {1: 500, 2: 0}
    assert f"Stored: link_info.json is read from {path}." in host.out
    host.link_info({"1": entry(900)})
    assert host.limiter("-l") == commands.OK
    assert host.engine.kernel == {1: 900}


def test_l_takes_the_agents_bundle_and_else_the_stock_clients_file(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legacy_cli, "STOCK_LINK_INFO", host.link_info({"5": entry(5)}))

    assert host.limiter("-l") == commands.OK
    assert host.engine.kernel == {5: 5}
    host.store()
    assert host.limiter("-l") == commands.OK
    assert host.engine.kernel == {1: 500, 2: 0}


def test_l_without_any_file_is_not_done(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legacy_cli, "STOCK_LINK_INFO", host.folder / "none.json")

    assert host.limiter("-l") == commands.NOT_DONE
    assert "none.json cannot be read" in host.err
    assert host.engine.calls == []


def test_b_stores_the_default_and_implies_unmatched_default(host: Host) -> None:
    host.configure('unmatched = "unlimited"\n')

    assert host.limiter("-l", "-b", "5000", "-p", host.link_info()) == commands.OK
    assert (host.engine.settings[-1].unmatched, host.engine.settings[-1].default_bandwidth_kbit) == ("default", 5000)
    assert "operator.json" in host.out
    host.limiter("-l")
    assert host.engine.settings[-1].default_bandwidth_kbit == 5000
    host.agent("once", "--link-info", host.link_info())
    assert (host.engine.settings[-1].unmatched, host.engine.settings[-1].default_bandwidth_kbit) == ("default", 5000)
    host.environment = {"SCIONLAB_BW_UNMATCHED": "unlimited"}
    host.limiter("-l")
    assert host.engine.settings[-1].unmatched == "unlimited"


def test_b_and_p_alone_only_store(host: Host) -> None:
    assert host.limiter("-b", "5000") == commands.OK
    assert "In force from the next" in host.out
    assert host.engine.calls == []
    assert Store(host.state).load_operator() == Operator(5000)
    path = host.link_info()
    assert host.limiter("-p", path) == commands.OK
    assert Store(host.state).load_operator() == Operator(5000, path)


@pytest.mark.parametrize("text", ["", "-1", "0", "1.5", "1e3", "five", "100000001", "9" * 30])
def test_bad_default_is_refused_and_not_stored(host: Host, text: str) -> None:
    assert (
        host.limiter("-l", f"-b{text}" if text.startswith("-") else "-b", *([] if text.startswith("-") else [text]))
        == 2
    )
    assert host.err.startswith("scionlab_bw_limiter: -b: ")
    assert host.engine.calls == []
    assert not host.state.exists()


def test_bad_file_is_not_stored(host: Host) -> None:
    assert host.limiter("-l", "-p", host.link_info("{")) == commands.NOT_DONE
    assert Store(host.state).load_operator() == Operator()
    assert host.engine.calls == []


def test_s_shows_and_changes_nothing(host: Host) -> None:
    host.engine.kernel = {1: 500, 2: 0}

    assert host.limiter("-s", "-p", host.link_info()) == commands.OK
    assert "17-ffaa:1:b6" in host.out
    assert host.engine.calls == ["read_links"]


def test_r_removes_everything_that_we_set(host: Host) -> None:
    host.limiter("-l", "-p", host.link_info())

    assert host.limiter("-r") == commands.OK
    assert host.engine.kernel == {}
    assert "Removed from the kernel:" in host.out


def test_failing_engine_is_not_exit_0(host: Host) -> None:
    host.engine.refused = frozenset({1})
    assert host.limiter("-l", "-p", host.link_info()) == commands.NOT_DONE
    host.engine.error = AgentError("This kernel has no htb.")
    assert host.limiter("-l") == commands.NOT_DONE
    assert host.limiter("-r") == commands.NOT_DONE
    assert host.limiter("-s") == commands.NOT_DONE


@pytest.mark.parametrize("arguments", [[], ["-l", "-r"], ["-x"], ["-b"], ["-l", "file"]])
def test_wrong_command_line_of_the_thesis_is_2(host: Host, arguments: list[str]) -> None:
    assert host.limiter(*arguments) == commands.USAGE
    assert "usage: scionlab_bw_limiter" in host.err


def test_h_explains_every_option(host: Host) -> None:
    assert host.limiter("-h") == 0
    for option in ("-l", "-r", "-s", "-b KBPS", "-p FILE", "-h"):
        assert option in host.out


def test_stored_choices_that_cannot_be_read_stop_everything(host: Host) -> None:
    host.state.mkdir()
    (host.state / "operator.json").write_text("{")

    for code in (host.agent("once", "--link-info", host.link_info()), host.limiter("-l")):
        assert code == commands.NOT_DONE
        assert "operator.json cannot be used: no JSON at character 1. Delete it" in host.err
    assert host.engine.calls == []


def test_a_stored_default_of_0_is_refused_by_name_before_anything_is_blocked(host: Host) -> None:
    host.state.mkdir(mode=0o700)
    (host.state / "operator.json").write_text('{"default_bandwidth_kbit": 0}')

    for code in (host.agent("once", "--link-info", host.link_info()), host.limiter("-l")):
        assert code == commands.NOT_DONE
        assert "default_bandwidth_kbit = 0: 0 would block all other traffic of this host, SSH included" in host.err
    assert host.engine.calls == []


# --- as installed -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["scionlab_bw_limiter", "scionlab-bw-agent"])
def test_wrapper_runs_from_any_folder_and_imports_nothing_from_it(name: str, tmp_path: Path) -> None:
    (tmp_path / "requests.py").write_text("raise SystemExit('imported from the current folder')")
    (tmp_path / "ap_agent").mkdir()
    link = tmp_path / "linked"
    link.symlink_to(ROOT / "packaging" / "bin" / name)

    done = subprocess.run([str(link), "-h"], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: ")


def test_nothing_is_called_stored_that_is_not(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_store: Store, _operator: Operator) -> None:
        raise StoreError("operator.json cannot be written: Read-only file system.")

    monkeypatch.setattr(Store, "save_operator", fail)

    assert host.limiter("-b", "5000", "-p", host.link_info(), "-l") == commands.NOT_DONE
    assert "Stored" not in host.out
    assert "Read-only" in host.err
    assert host.engine.calls == []


@pytest.mark.parametrize("kbps", ["0", "-1"])
def test_default_that_would_block_the_host_is_refused_with_a_remedy_that_works(host: Host, kbps: str) -> None:
    assert host.limiter(f"-b{kbps}", "-l") == commands.USAGE
    assert f"-b: {kbps} would block all other traffic of this host" in host.err
    assert "Choose at least 1." in host.err
