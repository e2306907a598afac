"""The user's end of a test that sends, as the command line client runs it, without the client.

    python -m lab.evaluation.user_end < order.json

The order is a `station.user_end.UserOrder` as JSON (`key` in hexadecimal, `phases` as `station.plan` writes them); the
report is one line of JSON on stdout.
"""

from __future__ import annotations

import json
import sys

from station.plan import read_phases
from station.user_end import UserOrder, run_user_end


def main() -> int:
    given = json.load(sys.stdin)
    phases = read_phases(given.pop("phases"))
    order = UserOrder(**given | {"key": bytes.fromhex(given["key"]), "phases": phases})
    print(json.dumps(run_user_end(order, lambda text: print(text, file=sys.stderr))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
