"""Whether tests of links may send from this host: the operator's setting, and a file that stops all of them at once.

Both processes look: the limiter before it takes packets of a test for those of its link, the agent before it sends.
"""

from __future__ import annotations

from typing import Literal

from ap_agent.common.settings import Settings

STOP_FILE = "link-tests-stopped"  # beside agent.toml; whatever it holds

Consent = Literal["on", "off", "stopped"]


def sending_tests(settings: Settings) -> Consent:
    """`stopped`: allowed by the setting, and the file is there, or nobody can say that it is not."""
    if not settings.link_tests:
        return "off"
    try:
        (settings.config_dir / STOP_FILE).lstat()
    except FileNotFoundError:
        return "on"
    except OSError:
        pass
    return "stopped"
