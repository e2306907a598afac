"""`scionlab_bw_limiter`, the command line of the thesis; and all command lines as they are installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ap_agent.commands import legacy_cli
from ap_agent.commands.operator_choice import OperatorChoice, load_choice
from ap_agent.common.lock import Lock
from ap_agent.common.outcome import LOCKED, OK, USAGE
from tests.agent_bundles import PINNED, entry
from tests.agent_host import ROOT, Host


def limits(host: Host) -> dict[int, int]:
    return {number: one.to_user_kbit for number, one in host.engine.has.links.items()}


def test_l_takes_what_was_handed_over_and_else_the_stock_clients_file(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(legacy_cli, "STOCK_LINK_INFO", host.link_info({"5": entry(5)}))
    host.configure(f'url = "https://service.example"\nhost_id = "4f1c0d2e"\nhost_secret = "x"\n{PINNED}')

    assert host.thesis("-l") == OK
    assert limits(host) == {5: 5}
    host.hand_over()
    assert host.thesis("-l") == OK
    assert limits(host) == {1: 500, 2: 0}


def test_b_stores_the_default_and_implies_unmatched_default(host: Host) -> None:
    host.configure('unmatched = "unlimited"\n')

    assert host.thesis("-l", "-b", "5000", "-p", host.link_info()) == OK
    assert host.engine.has.unmatched_kbit == 5000
    assert "operator.json" in host.out
    host.thesis("-l")
    assert host.engine.has.unmatched_kbit == 5000
    host.limiter("once", "--link-info", host.link_info())
    assert host.engine.has.unmatched_kbit == 5000
    host.environment = {"SCIONLAB_BW_UNMATCHED": "unlimited"}
    host.thesis("-l")
    assert host.engine.has.unmatched_kbit is None


def test_b_and_p_alone_only_store(host: Host) -> None:
    assert host.thesis("-b", "5000") == OK
    assert "Takes effect with the next" in host.out
    assert host.engine.passes == []
    assert load_choice(host.limiter_state) == OperatorChoice(5000)
    path = host.link_info()
    assert host.thesis("-p", path) == OK
    assert load_choice(host.limiter_state) == OperatorChoice(5000, path)
    assert (host.limiter_state / "operator.json").stat().st_mode & 0o777 == 0o600


def test_s_names_the_links_of_the_file_that_p_gives_with_it(host: Host) -> None:
    former, new = ({"5": entry(5) | {"ISD-AS": f"17-ffaa:1:{number}"}} for number in ("a", "b"))
    assert host.thesis("-l", "-p", host.link_info(former)) == OK
    host.thesis("-s", "-p", host.link_info(new, "new.json"))
    assert "17-ffaa:1:b" in host.out
    assert "17-ffaa:1:a" not in host.out


@pytest.mark.parametrize("text", ["", "-1", "0", "1.5", "1e3", "five", "100000001", "9" * 30])
def test_bad_default_is_refused_and_not_stored(host: Host, text: str) -> None:
    assert host.thesis("-l", *([f"-b{text}"] if text.startswith("-") else ["-b", text])) == USAGE
    assert host.err.startswith("scionlab_bw_limiter: -b: ")
    assert host.engine.passes == []
    assert not host.limiter_state.exists()


def test_while_the_service_runs_l_and_r_refuse(host: Host) -> None:
    with Lock(host.limiter_run, "limiter", "run"):
        for option in ("-l", "-r"):
            assert host.thesis(option, "-b", "5") == LOCKED
            assert "`systemctl stop scionlab-bw-limiter`" in host.err
    assert load_choice(host.limiter_state) == OperatorChoice()


# --- as installed -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["scionlab_bw_limiter", "scionlab-bw-agent", "scionlab-bw-limiter"])
def test_wrapper_runs_from_any_folder_and_imports_nothing_from_it(name: str, tmp_path: Path) -> None:
    (tmp_path / "requests.py").write_text("raise SystemExit('imported from the current folder')")
    (tmp_path / "ap_agent").mkdir()
    link = tmp_path / "linked"
    link.symlink_to(ROOT / "packaging" / "bin" / name)

    done = subprocess.run([str(link), "-h"], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: ")


def test_the_limiter_loads_nothing_that_speaks_http_or_unpacks() -> None:
    """Whoever trusts it with rights reads no more than its own packages."""
    script = "import sys, ap_agent.commands.limiter_cli, ap_agent.commands.legacy_cli; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"requests", "urllib3", "http.client", "tarfile", "prometheus_client"}
    assert {one for one in loaded if one.startswith(("ap_agent.agent", "ap_agent.usage", "ap_agent.selftest"))} == set()
