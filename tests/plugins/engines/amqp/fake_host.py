"""A host for one engine: a loop in a thread of its own, without trio and without a dispatcher."""

from __future__ import annotations

import heapq
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from kernel.contracts.engine import NOTHING_TAKEN, EngineEvent, Poller, PortOwner, Taken
from kernel.contracts.message import Batch, Envelope
from kernel.pipes.doorbell import Doorbell
from kernel.threads.poller import new_poller

Callback = Callable[[], Any]


class FakePort:
    """The dispatcher's side in a test's hand: what was sent is kept, what is to come is given."""

    def __init__(self, name: str, owner: PortOwner) -> None:
        self.name = name
        self.owner = owner
        self.routes: list[str] = []
        self.confirms = False
        self.wants_confirm = False
        self.room = True
        self.batches_sent: list[Batch] = []
        self.waiting: deque[Batch] = deque()
        self.confirmed_in = 0
        self.arrived = threading.Event()
        self._sent = 0
        self._position = 0
        self._waited_for: list[int] = []

    def send(self, batches: Sequence[Batch]) -> bool:
        self.batches_sent += batches
        if self.confirms:
            self._sent += sum(map(len, batches))
        self.arrived.set()
        return self.room

    def sent(self) -> int:
        return self._sent

    def confirmed(self) -> int:
        return 0

    asked: Mapping[str, int] = MappingProxyType({})

    def subscribed(self) -> bool:
        return True

    def when_subscribed(self, hops: int, then: Callable[[], Any]) -> None:
        then()

    def forget_when_subscribed(self) -> None: ...

    def unsynced(self) -> list[int]:
        return []

    def synced(self, hops: int) -> None: ...

    def wants(self, what: Envelope | Batch) -> bool:
        envelope = what.envelope if isinstance(what, Batch) else what
        return envelope.key != "unwanted"

    def take(self, most: int = 1 << 30) -> Taken:
        batches = list(self.waiting)
        self.waiting.clear()
        return self.number(batches)

    def number(self, batches: list[Batch]) -> Taken:
        count = sum(map(len, batches))
        first = self._position + 1
        self._position += count
        if not self.wants_confirm:
            return Taken(batches, count, None)
        self._waited_for += range(first, self._position + 1)
        return Taken(batches, count, self._position)

    def accept_mixed(self, *, accepts: bool = True) -> None:
        """What waits here is batches."""

    def has_input(self) -> bool:
        return bool(self.waiting)

    def confirm_through(self, position: int | None) -> None:
        left = [other for other in self._waited_for if position is None or other > position]
        if len(left) < len(self._waited_for):
            self.confirmed_in += len(self._waited_for) - len(left)
            self._waited_for = left
            self.arrived.set()

    def confirm_only(self, first: int, last: int) -> None:
        raise NotImplementedError

    def refuse(self, first: int, last: int, reason: str) -> None:
        raise NotImplementedError

    def nobody_waits(self) -> None:
        """The sources that waited have gone."""
        self._waited_for.clear()

    def take_again(self) -> Taken:
        return NOTHING_TAKEN

    def subscribe(self, pattern: str) -> None: ...

    def unsubscribe(self, pattern: str) -> None: ...

    def close(self) -> None: ...

    def count(self) -> int:
        return sum(map(len, self.batches_sent))


class FakeHost:
    """Enough of ``kernel.contracts.engine.Host`` for an engine that uses no nursery."""

    nursery: Any = None
    rendezvous: Any = {}  # what nobody else looks at
    more = False

    def __init__(self) -> None:
        self.poller: Poller = self
        self.events: list[EngineEvent] = []
        self.failures: list[BaseException] = []
        self.ports: dict[str, FakePort] = {}
        self._descriptors = new_poller()
        self._bell = Doorbell()
        self._posted: deque[Callback] = deque()
        self._timers: list[tuple[float, int, object]] = []
        self._callbacks: dict[object, tuple[int, Callback]] = {}
        self._timer_count = 0
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="fake host", daemon=True)
        self._descriptors.watch_bell(self._bell)

    def watch(self, fd: int, *, readable: Callback | None, writable: Callback | None) -> None:
        self._descriptors.watch(fd, readable, writable, self.failures.append)

    def now(self) -> float:
        return time.monotonic()

    def processor_time(self) -> float:
        return time.thread_time()

    def soon(self, callback: Callback) -> None:
        self.post(callback)

    def post(self, callback: Callback) -> None:
        self._posted.append(callback)
        self._bell.ring()

    def port(self, name: str, owner: PortOwner, options: dict[str, Any] | None = None) -> FakePort:
        self.ports[name] = FakePort(name, owner)
        return self.ports[name]

    def set_timer(self, when: float | None, callback: Callback, key: object) -> None:
        if when is None:
            self._callbacks.pop(key, None)
            return
        self._timer_count += 1
        self._callbacks[key] = self._timer_count, callback
        heapq.heappush(self._timers, (when, self._timer_count, key))

    def report(self, event: EngineEvent) -> None:
        self.events.append(event)

    def call(self, function: Callable[[], Any]) -> Any:
        """Call in the loop's thread and wait for the answer."""
        answers: list[Any] = []
        done = threading.Event()

        def answer() -> None:
            try:
                answers.append(function())
            finally:
                done.set()

        self.post(answer)
        assert done.wait(60), "the fake host is stuck"
        assert answers, "the call has raised: see failures"
        return answers[0]

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        if self._thread.is_alive():
            self.post(self._stop)
            self._thread.join(60)
        self._callbacks.clear()
        self._descriptors.close()
        del self._descriptors  # wires whose farewell is not over are closed with their callbacks
        self._bell.close()

    def _stop(self) -> None:
        self._stopping = True

    def _run(self) -> None:
        while not self._stopping:
            timeout = max(0.0, self._timers[0][0] - self.now()) if self._timers else None
            self._descriptors.poll(timeout)
            for _ in range(len(self._posted)):
                self._guard(self._posted.popleft())
            self._ring_timers()

    def _ring_timers(self) -> None:
        while self._timers and self._timers[0][0] <= self.now():
            _, number, key = heapq.heappop(self._timers)
            current = self._callbacks.get(key)
            if current is not None and current[0] == number:
                del self._callbacks[key]
                self._guard(current[1])

    def _guard(self, callback: Callback) -> None:
        try:
            callback()
        except BaseException as error:  # the fixture fails the test with it
            self.failures.append(error)
