"""A message that was queued before an extension was taken out of the installation."""

from __future__ import annotations

import time

import pytest
from celery.contrib.testing.worker import start_worker

from scionlab.celery import app

DEADLINE_S = 30.0


def test_a_task_of_an_extension_is_logged_and_dropped(capfd: pytest.CaptureFixture[str]) -> None:
    said = ""
    with start_worker(app, perform_ping_check=False, shutdown_timeout=20):
        app.send_task("scionlab.tasks.roll_up_usage")
        deadline = time.monotonic() + DEADLINE_S
        while "discarded" not in said:
            assert time.monotonic() < deadline, said
            time.sleep(0.05)
            said += "".join(capfd.readouterr())
    assert "Received unregistered task of type 'scionlab.tasks.roll_up_usage'" in said
