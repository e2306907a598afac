"""A whole small SCIONLab for the tests of this folder: service, worker, limiter, agent and hosts, as in the demo."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab.demo.agent import DemoAgent
from lab.demo.site import DemoSite
from lab.demo.world import SITE_URL, USER_ASES, World
from lab.serve import is_healthy
from lab.service import CoordinationService
from tests.faults.service.mailbox import Mailbox
from tests.support.namespaces import a_lab

_PREFIX = "slbwe2e"


@dataclass
class Stack:
    """Everything that runs; `attachment_point_id` is the AP that user ASes attach to, `mailbox` where mails arrive."""

    world: World
    service: CoordinationService
    site: DemoSite
    agent: DemoAgent
    attachment_point_id: int
    mailbox: Mailbox

    def in_network(self, function: Callable[[], Any]) -> Any:
        """Call a function where the site is reached; a browser that it starts is there too."""
        return self.world.service.call(function)


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder: Path = tmp_path_factory.mktemp("stack")
    with a_lab(_PREFIX) as lab:
        world = World.build(lab, USER_ASES)
        mailbox = world.service.call(Mailbox)  # beside the service: its 127.0.0.1 is there
        service = CoordinationService(
            folder / "service",
            bind="0.0.0.0:8000",
            site_url=SITE_URL,
            environment={"EMAIL_HOST": "127.0.0.1", "EMAIL_PORT": str(mailbox.port)},
            start_process=world.service.popen,
        )
        try:
            service.prepare()
            site = DemoSite(service, world.service.call)
            host = site.set_up(sorted({user_as.owner for user_as in USER_ASES}))
            service.start(lambda: world.service.call(lambda: is_healthy(SITE_URL)))
            agent = DemoAgent(world.ap, folder / "agent", more="usage_interval_s = 1\nlink_tests = true\n")
            agent.enrol(host.token)
            with closing(agent):
                agent.start()
                yield Stack(world, service, site, agent, host.attachment_point_id, mailbox)
        finally:
            service.stop()
            mailbox.close()
