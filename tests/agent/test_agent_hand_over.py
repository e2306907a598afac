"""The two files that the agent writes for the limiter."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from ap_agent.agent import hand_over as hand_over_module
from ap_agent.agent.bundle import Bundle, read_bundle
from ap_agent.agent.hand_over import HandOver
from ap_agent.common.errors import StoreError
from ap_agent.document.handover import FILE_NAME
from ap_agent.document.signatures import read_signed
from tests.agent_bundles import HOST_ID, bundle_bytes, entry


def signed(kbit: int = 500) -> Bundle:
    return read_bundle(bundle_bytes({"1": entry(kbit)}), host_id=HOST_ID, verify=read_signed)


def test_only_another_bundle_or_a_changed_file_is_written(tmp_path: Path) -> None:
    hand_over = HandOver(tmp_path)
    assert hand_over.put(signed())
    assert stat.S_IMODE((tmp_path / FILE_NAME).stat().st_mode) == 0o640
    assert not hand_over.put(signed())
    assert not HandOver(tmp_path).put(signed())
    assert hand_over.put(signed(600))
    (tmp_path / FILE_NAME).write_bytes(b"{}")
    assert hand_over.put(signed(600))
    (tmp_path / FILE_NAME).unlink()
    (tmp_path / FILE_NAME).symlink_to(tmp_path / "elsewhere")
    assert hand_over.put(signed(600))
    assert not (tmp_path / FILE_NAME).is_symlink()


def test_document_that_the_limiter_would_not_read_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hand_over_module, "MAX_BYTES", 100)
    with pytest.raises(StoreError, match="the limiter takes at most 100"):
        HandOver(tmp_path).put(signed())
    assert not (tmp_path / FILE_NAME).exists()
