"""The Coordination Service that `packaging/check` gives to an installed agent: Debian's own Python and libraries alone.

    python3 -m tests.packaged_service FOLDER

Listens on loopback. FOLDER gets `url`, `token` (enrols one host) and `receipts`, a line of JSON for each receipt. The
first tarball is cut off and has another limit: it must be in no kernel. Each further one limits link 1 to 500 kbit/s
and blocks link 2.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

from tests import agent_service as svc
from tests.agent_bundles import HOST_ID, KEY, SECRET, bundle_bytes, entry

TOKEN_SECRET = "R4nd0m_part_of-the_token-0123456789"
GOOD = bundle_bytes({"1": entry(500, "192.0.2.2"), "2": entry(0, "192.0.2.3")})
CUT_OFF = bundle_bytes({"1": entry(900, "192.0.2.2")})


def enrolment(handler: svc.Handler) -> None:
    document = {"host_id": HOST_ID, "host_secret": SECRET, "keys": [KEY.public.to_json()]}
    svc.reply(200, json.dumps(document).encode(), Content_Type="application/json")(handler)


def main(folder: Path) -> None:
    with svc.service() as service:
        is_first = iter([True])

        def config(handler: svc.Handler) -> None:
            answer = svc.truncated(CUT_OFF) if next(is_first, False) else svc.like_the_service(GOOD, "1.18", "7")
            answer(handler)

        def receipt(handler: svc.Handler) -> None:
            with (folder / "receipts").open("ab") as lines:
                lines.write(handler.request_seen.body + b"\n")
            svc.stored()(handler)

        service.answers |= {"/config": config, "/enforcement": receipt, "/api/v4/enrol": enrolment}
        (folder / "token").write_text(f"slbw1.{TOKEN_SECRET}.{KEY.key_id}\n")
        (folder / "url").write_text(service.url)  # last: it is waited for
        signal.pause()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
