"""The testbed of these tests: 17-ffaa:0:1101 is the core AS of ISD 17."""

from __future__ import annotations

import pytest

from scionlab.accounts.models import User
from scionlab.testbed.host import host_create
from scionlab.testbed.models import AS, Host
from tests.trust_world import make_core


@pytest.fixture
def core(db: None) -> AS:
    return make_core()


@pytest.fixture
def further(core: AS, staff: User) -> Host:
    """A second host of the core AS, with a border router alone."""
    Host.objects.filter(AS=core).update(internal_ip="10.0.0.1")
    values = {"public_ipv4": "192.0.2.99", "public_ipv6": None, "bind_ip": None, "internal_ip": "10.0.0.2"}
    return host_create(as_=core, actor=staff, label="", **values)
