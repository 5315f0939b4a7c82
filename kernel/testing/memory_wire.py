"""Memory wire: two ends of a stream without a socket, on a simulated clock, with faults on request.

A :class:`SimulatedHost` takes the place of a thread: it has the host that a ``StreamHost`` needs, a
dispatcher, and a clock that only ``run`` moves.  Nothing here waits, so hours of heartbeats take
milliseconds, and each run is the same::

    host = SimulatedHost()
    ours, theirs = host.wire(split=1, delay=0.5)
    ...
    host.run(until=60.0)

How time passes
---------------
``run`` takes turns, as the loop of a thread does (``kernel/threads/loop.py``), until one of them finds
nothing to do.  Meanwhile the clock stands still.  Then the clock goes to the next time at which something is
due, a timer or bytes that arrive, and the turns begin again.  What is due at the same time has a fixed order:
first bytes, as they were sent, then timers, as they were set.  So a run depends on nothing outside of it.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from kernel.contracts.engine import EngineEvent, PortOwner
from kernel.contracts.message import Buffer
from kernel.dispatcher.dispatcher import Dispatcher
from kernel.dispatcher.port import Port
from kernel.hosting.wire import drop_sent
from kernel.pipes.mailbox import Mailbox

# Far more turns than any test has.  Two engines that answer each other without end are found by it.
_ROUNDS = 1_000_000
# No open file has such a number, so a mistake with it cannot touch one.
_first_descriptor = itertools.count(1_000_000)


class MemoryWire:
    """One end.

    Keeps the contract of ``kernel.hosting.wire.Wire``; its descriptor is a number without a file.
    """

    def __init__(self, host: SimulatedHost, split: int, delay: float, capacity: int) -> None:
        self.peer: MemoryWire
        self.at_end = False
        self.has_early_data = False
        self.announces_end = False
        self.path = ""
        self.connected: None = None
        self.cut = False
        """Reading and writing raise ``ConnectionResetError`` from now on."""
        self.written: int = 0
        """Bytes that were taken for the other end."""
        self._host = host
        self._split = split
        self._delay = delay
        self._capacity = capacity
        self._arrived: deque[bytes] = deque()
        # Bytes that were sent to this end and that it has not received: those on their way, and ``_arrived``.
        self._flying = 0
        self._ended = False
        self._closed = False
        self._number = next(_first_descriptor)
        self._begun: list[Buffer] = []

    def fileno(self) -> int:
        """A number that the simulated host knows."""
        return -1 if self._closed else self._number

    def receive(self, most: int) -> bytes | None:
        """Return the next piece that has arrived, at most ``split`` bytes."""
        self._check()
        if not self._arrived:
            return b"" if self._ended else None
        piece = self._arrived.popleft()
        most = min(most, self._split)
        if len(piece) > most:
            self._arrived.appendleft(piece[most:])
            piece = piece[:most]
        self._flying -= len(piece)
        return piece

    def send_first(self, buffer: Buffer, buffers: deque[Buffer]) -> bool:
        """As ``send``, of one buffer."""
        buffers.append(buffer)
        return self.send(buffers)

    def send(self, buffers: deque[Buffer]) -> bool:
        """Write as much as the other end's capacity allows."""
        self._check()
        while buffers:
            # What is on its way counts, as in the buffers of two sockets.
            room = self._capacity - self.peer._flying
            if room <= 0:
                return False
            data = bytes(buffers[0][:room])
            drop_sent(buffers, len(data), self._begun)
            # Of an empty buffer nothing arrives: the peer would take it for the end.
            if data:
                self.written += len(data)
                self.peer._flying += len(data)
                self._host.after(self._delay, partial(self.peer._arrived.append, data))
        return True

    def shut_down(self) -> None:
        """Send no more; the other end sees the end after what was sent before."""
        # By the same delay as bytes, and what is due at the same time keeps its order: the end is behind all
        # bytes.
        self._check()
        self._host.after(self._delay, self.peer._see_end)

    def close(self) -> None:
        """Close; the other end sees the end after what was sent before."""
        if not self._closed:
            self._closed = True
            self._host.after(self._delay, self.peer._see_end)

    def ready(self) -> tuple[bool, bool]:
        """Whether it can be read, and written."""
        # A wire that is cut is ready for both, as a socket with an error is: reading or writing raises it.
        return bool(self._arrived) or self._ended or self.cut, self.peer._flying < self._capacity or self.cut

    def _see_end(self) -> None:
        self._ended = True

    def _check(self) -> None:
        if self.cut:
            raise ConnectionResetError(104, "the wire is cut")


class SimulatedHost:
    """Takes the place of a thread: ``run`` does its turns, and its clock moves from deadline to deadline."""

    nursery: Any = None
    more: bool = False
    """Each descriptor is ready alone."""

    def __init__(self) -> None:
        # It is its own poller: ``watch`` and ``more`` are below.
        self.poller = self
        self.dispatcher: Dispatcher = Dispatcher()
        self.events: list[EngineEvent] = []
        self.lingers: float = 0.0
        """What ``linger_left`` returns."""
        self._mailbox = Mailbox()
        # Nobody sleeps here, and the checks for leaks count descriptors.
        self._mailbox.bell.close()
        self._slot = self.dispatcher.add_thread("simulated", self._mailbox)
        self._clock = 0.0
        self._due: list[tuple[float, int, Callable[[], Any]]] = []
        self._timers: dict[object, tuple[float, Callable[[], Any]]] = {}
        self._order = itertools.count()
        self._watched: dict[int, tuple[Callable[[], int | None] | None, Callable[[], None] | None]] = {}
        self._wires: dict[int, MemoryWire] = {}

    def wire(
        self, *, split: int = 1 << 30, delay: float = 0.0, capacity: int = 1 << 20
    ) -> tuple[MemoryWire, MemoryWire]:
        """Return both ends of a wire.

        ``split``: bytes that one read gives at most; ``delay``: seconds on the way; ``capacity``: bytes that
        fit in.
        """
        ends = MemoryWire(self, split, delay, capacity), MemoryWire(self, split, delay, capacity)
        ends[0].peer, ends[1].peer = ends[1], ends[0]
        for end in ends:
            self._wires[end.fileno()] = end
        return ends

    # ------------------------------------------------------------------ what a host gives

    def now(self) -> float:
        """Seconds of the simulated clock."""
        return self._clock

    def processor_time(self) -> float:
        """No work takes any time here, so that a run can be repeated exactly."""
        return 0.0

    def soon(self, callback: Callable[[], Any]) -> None:
        """Call in a later turn."""
        self._mailbox.post(callback)

    # There is only one thread.
    post = soon

    def port(
        self, name: str, owner: PortOwner, options: dict[str, Any] | None = None, group: str = ""
    ) -> Port:
        """Join the dispatcher; without ``group`` it is the port's own name."""
        return self.dispatcher.open_port(self._slot, name, group or name, owner, options)

    def set_timer(self, when: float | None, callback: Callable[[], None], key: object) -> None:
        """Set the timer of a key; None cancels it."""
        # Removed first: a timer that is set again comes behind those that were set before (*How time
        # passes*).
        self._timers.pop(key, None)
        if when is not None:
            self._timers[key] = (when, callback)

    def linger_left(self) -> float:
        """Seconds that engines may take to end their conversations: ``lingers``."""
        return self.lingers

    def report(self, event: EngineEvent) -> None:
        """Append the event to ``events``."""
        self.events.append(event)

    def watch(
        self,
        fd: int,
        *,
        readable: Callable[[], int | None] | None = None,
        writable: Callable[[], None] | None = None,
    ) -> None:
        """Watch a wire, change what is watched, or stop watching it."""
        if readable or writable:
            self._watched[fd] = (readable, writable)
        else:
            self._watched.pop(fd, None)

    def release(self) -> None:
        """Drop all watches and timers, as a thread does when an engine ends."""
        self._watched.clear()
        self._timers.clear()

    # ------------------------------------------------------------------ time

    def after(self, seconds: float, callback: Callable[[], Any]) -> None:
        """Call ``callback`` when the clock has moved by so many seconds."""
        # The counter keeps the order of callbacks that are due at the same time, and keeps heapq from
        # comparing callbacks.
        heapq.heappush(self._due, (self._clock + seconds, next(self._order), callback))

    def run(self, until: float | None = None) -> None:
        """Do turns until nothing is left to do now.

        With ``until``, then move the clock to that time, from deadline to deadline.
        """
        for _ in range(_ROUNDS):
            if self._turn():
                continue
            following = self._next()
            if until is None or following is None or following > until:
                break
            # A deadline may lie in the past: a timer may be set to a time that has gone by.
            self._clock = max(self._clock, following)
        else:
            raise AssertionError(f"the engines go on working for {_ROUNDS:,} turns without an end")
        if until is not None:
            self._clock = max(self._clock, until)

    def _next(self) -> float | None:
        times = [when for when, _ in self._timers.values()]
        if self._due:
            times.append(self._due[0][0])
        return min(times, default=None)

    def _turn(self) -> bool:
        worked = self._mailbox.process()
        while self._due and self._due[0][0] <= self._clock:
            heapq.heappop(self._due)[2]()
            worked = True
        # A copy, and a second look: a callback may set or cancel any timer.
        for key, (when, callback) in list(self._timers.items()):
            if when <= self._clock and self._timers.get(key) == (when, callback):
                del self._timers[key]
                callback()
                worked = True
        # Level-triggered, as the poller of a thread: a wire that stays readable is called in each turn.
        for number, wire in list(self._wires.items()):
            for at, is_ready in enumerate(wire.ready()):
                # Looked up anew for each direction: the first callback may have changed or ended the watch.
                callback_of = self._watched.get(number)
                if is_ready and callback_of is not None and callback_of[at] is not None:
                    callback_of[at]()  # type: ignore[misc]  # just tested
                    worked = True
        return worked
