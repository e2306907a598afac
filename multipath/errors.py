"""How a download ends without the file; each has the exit code of the command."""


class MpgetError(Exception):
    """The message says what happened and what to do."""

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
