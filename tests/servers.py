"""Starts a PostgreSQL and a Redis of our own, runs a command with DATABASE_URL and REDIS_URL set, and stops both.

python -m tests.servers -- python -m pytest tests/limits
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from lab.servers import ServerError, both

# Statistics that are taken between two tests are of tables whose rows were all rolled back: with them a join of twelve
# tables is planned as nested loops over "one row" each, and takes minutes as soon as a test has 46 Links.
NO_STATISTICS = "autovacuum=off"


def main(arguments: list[str]) -> int:
    command = arguments[1:] if arguments[:1] == ["--"] else arguments
    if not command:
        print(__doc__, file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with both(NO_STATISTICS) as urls:
            return subprocess.run(command, check=False, env=os.environ | urls).returncode
    except ServerError as exc:
        print(f"tests.servers: {exc}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
