"""Whether link tests may send from this host: the operator's setting, and a file that stops all of them immediately.

Checked by the limiter before it counts packets of a test as its link's, and by the agent before it sends.
"""

from __future__ import annotations

from typing import Literal

from ap_agent.common.settings import Settings

STOP_FILE = "link-tests-stopped"  # beside agent.toml; its content does not matter

Consent = Literal["on", "off", "stopped"]


def sending_tests(settings: Settings) -> Consent:
    """`stopped`: allowed by the setting, but the file exists or cannot be checked."""
    if not settings.link_tests:
        return "off"
    try:
        (settings.config_dir / STOP_FILE).lstat()
    except FileNotFoundError:
        return "on"
    except OSError:
        pass
    return "stopped"
