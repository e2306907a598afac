"""Collected by `./dev test --core` alone (tests/conftest.py). The cast is that of tests/web."""

from tests.cast import *  # noqa: F403
from tests.cast import _nobody_was_heard_before, _real_servers, _redis_was_never_away  # noqa: F401
