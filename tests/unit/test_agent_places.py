"""What is not the agent's is neither deleted, overwritten nor given another mode, wherever the configuration points."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from ap_agent.agent.metrics import Metrics
from ap_agent.agent.store import Operator, Store, write_atomically
from ap_agent.commands import commands
from ap_agent.common.errors import SettingsError, StoreError
from ap_agent.common.places import check_places
from ap_agent.common.settings import Settings
from ap_agent.document.bundle import read_bundle
from tests.agent_bundles import HOST_ID, bundle_bytes, entry
from tests.agent_host import V7, Host


@pytest.fixture
def host(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(commands, "require_net_admin", lambda: None)  # the fake kernel lets everybody
    return Host(tmp_path, capsys)


@pytest.fixture
def somebodys(tmp_path: Path) -> Path:
    """A folder of somebody: with a file, open to others."""
    folder = tmp_path / "somebody"
    (folder / "versions" / "1.0").mkdir(parents=True)
    (folder / "thesis.tex").write_text("years of work")
    folder.chmod(0o755)
    return folder


def tree(folder: Path) -> dict[str, tuple[int, str]]:
    """Every path below with its mode and content."""
    return {
        str(path.relative_to(folder)): (
            stat.S_IMODE(path.lstat().st_mode),
            path.read_text() if path.is_file() else "",
        )
        for path in [folder, *folder.rglob("*")]
    }


# --- state_dir --------------------------------------------------------------------------------------------------------


def test_somebodys_folder_as_state_dir_stays_as_it_is_and_run_says_what_to_do(host: Host, somebodys: Path) -> None:
    before = tree(somebodys)
    host.config.write_text(f'state_dir = "{somebodys}"\nrun_dir = "{host.run_dir}"\n')

    for command in (("run",), ("once", "--link-info", host.link_info())):
        assert host.agent(*command) == commands.USAGE
        assert f"state_dir = {somebodys} holds what is not the agent's (thesis.tex). Choose a folder" in host.err
    assert host.limiter("-b", "5000") == commands.NOT_DONE
    assert "holds what is not the agent's" in host.err
    with pytest.raises(StoreError, match="holds what is not the agent's"):
        Store(somebodys).save(read_bundle(V7, host_id=HOST_ID))
    assert tree(somebodys) == before


def test_an_empty_folder_that_is_open_to_others_is_not_closed(tmp_path: Path) -> None:
    folder = tmp_path / "srv"
    folder.mkdir()
    folder.chmod(0o755)

    with pytest.raises(SettingsError, match=r"is empty and open to other users \(mode 0755\).*`chmod 700 ") as refused:
        check_places(Settings(state_dir=folder))
    assert refused.value.key == "state_dir"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    folder.chmod(0o700)
    Store(folder).save(read_bundle(V7, host_id=HOST_ID))


def test_our_folder_stays_ours_whatever_somebody_lays_into_it(tmp_path: Path) -> None:
    store = Store(tmp_path / "state")
    store.save(read_bundle(V7, host_id=HOST_ID))
    (store.folder / "note.txt").write_text("do not touch")
    (store.folder / "versions" / "mine").mkdir()

    for kbit in range(1, 7):
        store.save_operator(Operator(default_bandwidth_kbit=kbit))
        store.save(read_bundle(bundle_bytes({"1": entry(kbit)}), host_id=HOST_ID))
    assert (store.folder / "note.txt").read_text() == "do not touch"
    kept = sorted(path.name for path in (store.folder / "versions").iterdir())
    assert (len(kept), kept[-1]) == (4, "mine")  # three of ours: pruning knows its own names


def test_a_file_system_of_its_own_may_be_the_state_dir(tmp_path: Path) -> None:
    (tmp_path / "mounted" / "lost+found").mkdir(parents=True)
    (tmp_path / "mounted").chmod(0o700)

    check_places(Settings(state_dir=tmp_path / "mounted", run_dir=tmp_path / "run"))


# --- metrics_file and run_dir -----------------------------------------------------------------------------------------


def test_a_folder_as_metrics_file_is_refused_and_kept(host: Host, somebodys: Path) -> None:
    before = tree(somebodys)
    host.configure(f'metrics_file = "{somebodys}"\n')

    assert host.agent("run") == commands.USAGE
    assert f"metrics_file: {somebodys} cannot be used: Is a directory. Name the file itself" in host.err
    with pytest.raises(OSError, match="Is a directory"):  # one that is made while the agent runs
        Metrics().write_file(somebodys)
    assert tree(somebodys) == before


def test_a_file_that_holds_no_metrics_of_ours_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "host.prom"
    path.write_text("node_load1 0.3\n")
    settings = Settings(state_dir=tmp_path / "state", run_dir=tmp_path / "run", metrics_file=path)

    with pytest.raises(SettingsError, match="holds something else than metrics of the agent") as refused:
        check_places(settings)
    assert refused.value.key == "metrics_file"
    path.unlink()
    check_places(settings)
    Metrics().write_file(path)
    check_places(settings)
    path.write_text("")  # a disk was full
    check_places(settings)


def test_a_symbolic_link_as_metrics_file_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "link.prom").symlink_to(tmp_path / "elsewhere.prom")

    with pytest.raises(SettingsError, match="is a symbolic link, which the agent would replace"):
        check_places(Settings(state_dir=tmp_path / "state", metrics_file=tmp_path / "link.prom"))


@pytest.mark.parametrize("place", ["state/trust.json", "run/health.json"])
def test_metrics_do_not_go_where_the_agent_keeps_something_else(tmp_path: Path, place: str) -> None:
    settings = Settings(state_dir=tmp_path / "state", run_dir=tmp_path / "run", metrics_file=tmp_path / place)

    with pytest.raises(SettingsError, match="a place that the agent needs for something else"):
        check_places(settings)


@pytest.mark.parametrize("content", ['{"status": "up"}', "all is well"])
def test_the_health_file_of_another_program_is_not_overwritten(tmp_path: Path, content: str) -> None:
    (tmp_path / "health.json").write_text(content)

    with pytest.raises(SettingsError, match=r"has a health\.json that the agent did not write") as refused:
        check_places(Settings(state_dir=tmp_path / "state", run_dir=tmp_path))
    assert refused.value.key == "run_dir"


def test_writing_a_file_deletes_no_neighbour(tmp_path: Path) -> None:
    (tmp_path / "metrics.prom.new").write_text("somebody's draft")

    write_atomically(tmp_path / "metrics.prom", b"1\n", mode=0o644)

    assert (tmp_path / "metrics.prom.new").read_text() == "somebody's draft"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics.prom", "metrics.prom.new"]
