"""A process of agents: `python -m lab.bench.fleet FILE`, where FILE is JSON of `fleet.Fleet`.

Reads orders from its standard input, a JSON object a line: `{"run": N}` (so many agents, the first ones),
`{"deaths_per_s": R}`, `{"report": true}`. Writes the documents that agents took (`fleet.News`) and reports. Ends with
its input, or after `for_s`.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import uvloop

from ap_agent.agent.bundle import Bundle
from ap_agent.agent.fetch import Have
from ap_agent.common.keys import parse_keys
from lab.bench.fleet.agent import Counts, FleetAgent
from lab.bench.poll_client import Line, PollingHost, Said

AT_ONCE = 100  # connections that are being opened: the server's queue is finite
CONNECT_TIMEOUT_S, READ_TIMEOUT_S = 5.0, 10.0  # the agent's
RESTART_S = (0.5, 3.0)


class Process:
    """All agents of this process, on one loop."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self._port, self._address = int(plan["port"]), str(plan["address"])
        self._random = random.Random(plan["seed"])
        self._counts = Counts()
        self._agents = [self._agent(one, plan) for one in plan["hosts"]]
        self._tasks: dict[FleetAgent, asyncio.Task[None]] = {}
        self._waiting: dict[FleetAgent, float] = {}  # since when
        self._opening = asyncio.Semaphore(AT_ONCE)
        self._silent: list[Line] = []  # of hosts that died without a word
        self.deaths_per_s = 0.0

    def _agent(self, one: Mapping[str, Any], plan: Mapping[str, Any]) -> FleetAgent:
        return FleetAgent(
            PollingHost(one["id"], one["uid"], one["secret"]),
            parse_keys(plan["keys"]),
            self._counts,
            self._random.uniform,
            have=Have("1.1", 1, one["digest"]) if one["digest"] else None,
            clock_error=timedelta(seconds=one.get("clock_error_s", 0)),
            long_poll_s=plan["long_poll_s"],
        )

    # --- orders -------------------------------------------------------------------------------------------------

    def obey(self, order: Mapping[str, Any]) -> None:
        if "run" in order:
            self._run(order["run"])
        self.deaths_per_s = order.get("deaths_per_s", self.deaths_per_s)
        if "report" in order:
            self._report()

    def _run(self, count: int) -> None:
        for agent in self._agents[count:]:
            task = self._tasks.pop(agent, None)
            if task is not None:
                task.cancel()
        for agent in self._agents[:count]:
            if agent not in self._tasks:
                self._tasks[agent] = asyncio.get_running_loop().create_task(self._live(agent))

    def _report(self) -> None:
        said = {"running": len(self._tasks), "waiting": len(self._waiting), "answers": self._counts.answers,
                "away_s": self._counts.away_s, "cpu_s": time.process_time()}  # fmt: skip
        _print({"report": said})
        self._counts.answers.clear()
        self._counts.away_s.clear()

    async def kill_some(self) -> None:
        """Agents die, half of them without closing their connection, and come back after seconds."""
        while True:
            await asyncio.sleep(1 / self.deaths_per_s if self.deaths_per_s else 0.2)
            if not self.deaths_per_s or not self._tasks:
                continue
            agent = self._random.choice(list(self._tasks))
            self._tasks[agent].cancel("silent" if self._random.random() < 0.5 else "killed")
            self._counts.answers["deaths"] += 1
            agent.restart()
            self._tasks[agent] = asyncio.get_running_loop().create_task(
                self._live(agent, after_s=self._random.uniform(*RESTART_S))
            )

    # --- one agent ----------------------------------------------------------------------------------------------

    async def _live(self, agent: FleetAgent, *, after_s: float = 0.0) -> None:
        line: Line | None = None
        try:
            await asyncio.sleep(after_s)
            while True:
                if line is None or line.is_closed:
                    line = await self._connected()
                said = await self._ask(agent, line)
                if said is None and line is not None:
                    line.close()
                    line = None
                pause_s, bundle = agent.take(said, time.monotonic())
                if bundle is not None:
                    _print(_news(bundle, said))
                await asyncio.sleep(pause_s)
        except asyncio.CancelledError as exc:
            if line is not None and exc.args == ("silent",):
                self._silent.append(line)
            elif line is not None:
                line.cut()
            raise
        finally:
            self._waiting.pop(agent, None)

    async def _connected(self) -> Line | None:
        loop = asyncio.get_running_loop()
        async with self._opening:
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    _, line = await loop.create_connection(
                        lambda: Line(keeps_bodies=True), "127.0.0.1", self._port, local_addr=(self._address, 0)
                    )
            except OSError:
                return None
        return line

    async def _ask(self, agent: FleetAgent, line: Line | None) -> Said | None:
        query = agent.query(time.monotonic())
        if line is None:
            return None
        if agent.asks_to_wait_s:
            self._waiting[agent] = time.monotonic()
        try:
            async with asyncio.timeout(agent.asks_to_wait_s + READ_TIMEOUT_S):
                return await line.ask(agent.host.request(self._port, query))
        except OSError:
            return None
        finally:
            self._waiting.pop(agent, None)


def _news(bundle: Bundle, said: Said | None) -> dict[str, Any]:
    kbit = {interface_id: link.bandwidth_kbit for interface_id, link in bundle.links.items()}
    at = 0.0 if said is None else said.at
    return {"uid": bundle.host_id, "limits_version": bundle.limits_version, "kbit": kbit, "at": at,
            "taken": time.monotonic()}  # fmt: skip


def _print(said: object) -> None:
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


async def _main(plan: Mapping[str, Any]) -> None:
    process = Process(plan)
    loop = asyncio.get_running_loop()
    dying = loop.create_task(process.kill_some())
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(0, "rb"))
    try:
        async with asyncio.timeout(plan["for_s"]):
            while line := await reader.readline():
                process.obey(json.loads(line))
    except TimeoutError:
        pass
    dying.cancel()
    process.obey({"run": 0})


if __name__ == "__main__":
    read = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_main(read))
