"""Brings `core`'s decisions about: a thread for each range under way, and one lock around decisions and writes."""

from __future__ import annotations

import http.client
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from multipath import AllPathsDeadError
from multipath.core import Download, Task
from multipath.http import Connection, RefusedError, other_device
from multipath.part import Part
from multipath.path_state import State
from multipath.paths import Path

CHUNK_BYTES = 256 << 10
TICK_S, SAVE_S = 0.1, 2.0


class Transfer:
    """`say` prints a sentence, `draw` is called a few times a second."""

    def __init__(
        self, paths: Sequence[Path], core: Download, part: Part, say: Callable[[str], None], draw: Callable[[], None]
    ) -> None:
        self._paths, self._core, self._part, self._say, self._draw = paths, core, part, say, draw
        self._lock = threading.Condition()
        self._is_over = False
        self._error: BaseException | None = None
        self._checking: set[int] = set()
        self._ends: dict[tuple[object, ...], int] = {}  # what each path really is -> its number

    def run(self) -> None:
        """Fetch all of it. Raises `AllPathsDeadError` and `LocalError`; the map then has what came."""
        for index in range(len(self._paths)):
            self._start(self._open, index)
        saved_s = time.monotonic()
        try:
            while self._goes_on():
                self._draw()
                if time.monotonic() - saved_s >= SAVE_S:
                    self._save()
                    saved_s = time.monotonic()
        finally:
            with self._lock:
                self._is_over = True
                self._core.abandoned += sum(one.end - one.pos for one in self._core.tasks)
            self._save()
        if not self._core.is_complete:
            raise AllPathsDeadError(f"All paths are dead. {self._part.path} has what came; --resume continues.")

    def _goes_on(self) -> bool:
        with self._lock:
            self._lock.wait(TICK_S)
            if self._error is not None:
                raise self._error
            self._core.tick(time.monotonic())
            return not (self._core.is_complete or self._core.is_dead)

    def _save(self) -> None:
        with self._lock:
            reference, done = self._core.reference, [(s, e) for s, e, _ in self._core.done]
        if reference is not None:
            self._part.save(reference, done)

    # --- threads of a path ----------------------------------------------------------------------------------------

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        threading.Thread(target=self._guard, args=(work, *arguments), daemon=True).start()

    def _guard(self, work: Callable[..., None], *arguments: object) -> None:
        """An error that is not a path's ends the download."""
        try:
            work(*arguments)
        except BaseException as exc:
            with self._lock:
                self._error = self._error or exc
                self._lock.notify_all()

    def _is_left(self, index: int) -> bool:
        return self._is_over or self._core.paths[index].state is State.OUT

    def _open(self, index: int) -> None:
        """Ask for one byte, which tells what there is; then fetch ranges over as many connections as it takes."""
        connection = Connection(self._paths[index])
        while not self._succeeds(index, partial(self._first, index, connection)):
            connection.close()
            with self._lock:
                while not self._is_left(index) and time.monotonic() < self._core.paths[index].retry_at_s:
                    self._lock.wait(TICK_S)
                if self._is_left(index):
                    return
        for _ in range(self._core.paths[index].under_way - 1):
            self._start(self._work, index, Connection(self._paths[index]))
        self._work(index, connection)

    def _succeeds(self, index: int, function: Callable[[], None]) -> bool:
        """Whether it did; the core is told what did not."""
        try:
            function()
            return True
        except ssl.SSLCertVerificationError as exc:
            tell, reason = self._core.leave, f"its certificate does not verify: {exc.verify_message}"
        except RefusedError as exc:
            tell, reason = self._core.leave, str(exc)
        except (OSError, http.client.HTTPException) as exc:
            tell, reason = self._core.failed, str(exc) or type(exc).__name__
        with self._lock:
            tell(index, reason, time.monotonic())
        return False

    def _first(self, index: int, connection: Connection) -> None:
        facts, response = connection.get(0, 1)
        if facts.ranged:
            response.read()
        else:
            connection.close()
        path, ends = self._paths[index], connection.ends
        device = other_device(path.source, ends[1]) if path.source and ends else None
        if device is not None:
            self._say(f"{path}: packets from this source leave by {device}, another device.")
        with self._lock:
            twin = self._ends.setdefault((path.device, path.proxy, ends, connection.url), index)
            if twin != index:
                raise RefusedError(f"it has the addresses and the URL of {self._paths[twin]}")
            self._core.opened(index, facts, connection.handshake_s, time.monotonic())
            self._lock.notify_all()

    def _work(self, index: int, connection: Connection) -> None:
        while True:
            with self._lock:
                while (task := self._core.take(index, time.monotonic())) is None:
                    if self._is_left(index):
                        return connection.close()
                    self._lock.wait(TICK_S)
            if not self._succeeds(index, partial(self._fetch, task, connection)):
                connection.close()
            with self._lock:
                self._core.drop(task)
                self._lock.notify_all()

    def _fetch(self, task: Task, connection: Connection) -> None:
        left = task.end - task.pos
        facts, response = connection.get(task.pos, task.end)
        with self._lock:
            reason = self._core.differs(facts)
            if facts.ranged != self._core.paths[task.path].ranged:
                reason = "it answers some requests with Range and some without"
        if reason is not None:
            raise RefusedError(reason)
        while task.is_live:
            data = response.read1(CHUNK_BYTES)
            if not data:
                raise http.client.HTTPException(f"the answer ended {left} bytes early")
            left -= len(data)
            self._keep(task, data)
        if left:
            connection.close()
        else:
            response.read()  # nothing; only then http.client lets the connection be used again

    def _keep(self, task: Task, data: bytes) -> None:
        with self._lock:
            at = task.pos
            for start, end in self._core.arrived(task, len(data), time.monotonic()):
                self._part.write(start, memoryview(data)[start - at : end - at])
            todo = self._core.unchecked - self._checking
            self._checking |= todo
        for piece in todo:
            is_right = self._part.is_right(piece)
            with self._lock:
                self._checking.discard(piece)
                self._core.checked(piece, is_right, self._part.digest, time.monotonic())
