"""What is not the agent's is neither deleted, overwritten nor given another mode, wherever the configuration points."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from ap_agent.agent.bundle import read_bundle
from ap_agent.agent.run import check_places
from ap_agent.agent.store import Store
from ap_agent.common.errors import SettingsError, StoreError
from ap_agent.common.settings import Settings
from tests.agent_bundles import HOST_ID, bundle_bytes


def test_somebodys_folder_as_state_dir_stays_as_it_is_and_the_remedy_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "somebody"
    folder.mkdir()
    folder.chmod(0o755)
    (folder / "thesis.tex").write_text("years of work")

    with pytest.raises(SettingsError) as refused:
        check_places(Settings(state_dir=folder, run_dir=tmp_path / "run"))
    assert refused.value.key == "state_dir"
    shown = f"state_dir = {folder} contains files of other programs (thesis.tex). Choose a folder"
    assert shown in str(refused.value)
    with pytest.raises(StoreError, match="contains files of other programs"):
        Store(folder).save(read_bundle(bundle_bytes(), host_id=HOST_ID))
    assert [(path.name, path.read_text()) for path in folder.iterdir()] == [("thesis.tex", "years of work")]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


# --- metrics_file and run_dir -----------------------------------------------------------------------------------------


def test_a_file_that_holds_no_metrics_of_ours_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "host.prom"
    path.write_text("node_load1 0.3\n")
    settings = Settings(state_dir=tmp_path / "state", run_dir=tmp_path / "run", metrics_file=path)

    with pytest.raises(SettingsError, match=r"host\.prom was not written by the agent") as refused:
        check_places(settings)
    assert refused.value.key == "metrics_file"
    path.unlink()
    check_places(settings)
    path.write_text("# HELP scionlab_bw_agent_links Limited links.\n")
    check_places(settings)
    path.write_text("")  # a disk was full
    check_places(settings)


@pytest.mark.parametrize(
    ("places", "key", "words"),
    [
        ({"metrics_file": "state/trust.json"}, "metrics_file", "is used by the agent for another purpose"),
        ({"metrics_file": "run/health.json"}, "metrics_file", "is used by the agent for another"),
        ({"run_dir": "."}, "run_dir", "health.json was not written by the agent"),
        ({"metrics_file": "."}, "metrics_file", "cannot be used: Is a directory. Name a file of its own"),
        ({"metrics_file": "link.prom"}, "metrics_file", "is a symbolic link, which the agent would replace"),
    ],
)
def test_the_agent_replaces_nothing_that_is_not_its_own(
    tmp_path: Path, places: dict[str, str], key: str, words: str
) -> None:
    (tmp_path / "health.json").write_text("all is well")  # of another program
    (tmp_path / "link.prom").symlink_to(tmp_path / "elsewhere.prom")
    below = {name: tmp_path / place for name, place in ({"state_dir": "state", "run_dir": "run"} | places).items()}
    with pytest.raises(SettingsError) as refused:
        check_places(Settings(**below))  # type: ignore[arg-type]  # folders and files
    assert refused.value.key == key
    assert words in refused.value.message
