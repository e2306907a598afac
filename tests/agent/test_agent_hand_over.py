"""The two files that the agent writes for the limiter."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from ap_agent.agent import hand_over as hand_over_module
from ap_agent.agent.bundle import Bundle, read_bundle
from ap_agent.agent.hand_over import HandOver
from ap_agent.common.errors import StoreError
from ap_agent.document.handover import FILE_NAME, read_document
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


@pytest.mark.parametrize("is_verified", [True, False])
def test_total_and_observe_only_reach_the_limiter_whether_or_not_somebody_vouches_for_them(
    tmp_path: Path, *, is_verified: bool
) -> None:
    """With allow_unsigned "observe only" was lost, and the limits were enforced."""
    bundle = read_bundle(bundle_bytes(text={"total_kbit": 900, "observe_only": True}), host_id=HOST_ID)
    HandOver(tmp_path).put(bundle if is_verified else bundle.unsigned())
    data = (tmp_path / FILE_NAME).read_bytes()
    said = read_document(data, host_id=HOST_ID, verify=read_signed, allow_unsigned=True)
    assert (said.signed is not None) == is_verified
    assert (said.configuration.total_kbit, said.configuration.is_observe_only) == (900, True)


def test_document_that_the_limiter_would_not_read_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hand_over_module, "MAX_BYTES", 100)
    with pytest.raises(StoreError, match="the limiter takes at most 100"):
        HandOver(tmp_path).put(signed())
    assert not (tmp_path / FILE_NAME).exists()
