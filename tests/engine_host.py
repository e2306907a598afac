"""The real engine in a network namespace: what it is told, and where its maps lie."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path
from types import TracebackType

from ap_agent.dataplane.engine import Engine, Outcome
from ap_agent.dataplane.program import Key
from ap_agent.dataplane.wanted import LimitedLink, Wanted
from ap_agent.document.state import Counters
from measuring.netns import Namespace


def key(remote: str, remote_port: int | None = None, local: str = "", local_port: int | None = None) -> Key:
    """The thesis' four keys are `remote` alone."""
    return Key(ip_address(remote), remote_port, ip_address(local) if local else None, local_port)


def limited(
    interface_id: int, kbit: int, *keys: Key, from_user_kbit: int | None = None, observed: bool = False
) -> LimitedLink:
    """Both ways the same limit, unless said otherwise."""
    return LimitedLink(interface_id, keys, kbit, kbit if from_user_kbit is None else from_user_kbit, observed)


class EngineHost:
    """An engine whose home is `ap`, with maps of its own; use it in a `with`. Limits end with it."""

    def __init__(self, ap: Namespace) -> None:
        self.ap = ap
        self._folder = tempfile.TemporaryDirectory(prefix="slbw-maps-")
        self.maps_dir = Path(self._folder.name) / "maps"

    def __enter__(self) -> EngineHost:
        self.engine = self.ap.call(lambda: Engine(self.maps_dir))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.engine.close()
        subprocess.run(["umount", "--lazy", str(self.maps_dir)], check=False, capture_output=True)
        self._folder.cleanup()

    def again(self) -> None:
        """Another process takes over: this engine goes without a word, the next one finds maps and filters."""
        self.engine.close()
        self.engine = self.ap.call(lambda: Engine(self.maps_dir))

    def enforce(
        self, links: Iterable[LimitedLink], *, unmatched_kbit: int | None = None, interfaces: tuple[str, ...] = ()
    ) -> Outcome:
        """Whatever comes of it."""
        wanted = Wanted({one.interface_id: one for one in links}, unmatched_kbit, interfaces)
        return self.ap.call(lambda: self.engine.enforce(wanted))

    def must_enforce(self, *links: LimitedLink, **more: object) -> Outcome:
        """All of them, without a problem."""
        outcome = self.enforce(links, **more)  # type: ignore[arg-type]
        assert (outcome.problems, dict(outcome.failed)) == ((), {})
        return outcome

    def counters(self, interface_id: int) -> tuple[Counters, Counters]:
        """To the user, from the user; 0 is the unmatched."""
        found = {
            direction: one for (number, direction), (_, one) in self.engine.counters().items() if number == interface_id
        }
        return found["to_user"], found["from_user"]  # type: ignore[index]
