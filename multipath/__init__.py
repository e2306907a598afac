"""`mpget`: fetches one file over several paths at once, from any web server with Range (mpget(1), docs/mpget.md).

It imports nothing else of ours and only needs Python 3.11. This module has the errors and exit codes.
"""

VERSION = "0.1.0"


class MpgetError(Exception):
    """The message says what happened and what to do; `code` is the exit code of the command."""

    code = 1


class UsageError(MpgetError):
    code = 2


class AllPathsDeadError(MpgetError):
    code = 3


class WrongHashError(MpgetError):
    code = 4


class LocalError(MpgetError):
    """The file cannot be written here."""

    code = 5
