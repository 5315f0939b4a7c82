"""A dispatcher whose threads are turned by hand: everything happens in one thread, in a known order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kernel.contracts.message import Batch, Envelope, batch_of
from kernel.dispatcher.dead_letter import dead_letter_route
from kernel.dispatcher.dispatcher import Dispatcher, ThreadSlot
from kernel.dispatcher.port import Port
from kernel.dispatcher.route import RouteSpec
from kernel.pipes.mailbox import Mailbox
from kernel.pipes.water_marks import WaterMarks
from kernel.routing.by_key import ByKey
from kernel.routing.fan_out import FanOut
from kernel.routing.reply import Reply
from kernel.routing.round_robin import RoundRobin

ROUTERS: dict[str, tuple[Callable[[], Any], bool, bool]] = {
    "fan-out": (FanOut, False, False),
    "round-robin": (RoundRobin, True, False),
    "by-key": (ByKey, False, True),
    "reply": (Reply, False, True),
}


class Owner:
    """A port's owner that writes down what it is told."""

    def __init__(self) -> None:
        self.outputs = 0
        self.writables = 0
        self.confirmations: list[int] = []

    def on_output(self) -> None:
        self.outputs += 1

    def on_writable(self) -> None:
        self.writables += 1

    def on_confirmed(self, position: int) -> None:
        self.confirmations.append(position)


class System:
    """Threads, ports and routes by name."""

    def __init__(self) -> None:
        self.dispatcher = Dispatcher()
        self.slots: dict[str, ThreadSlot] = {}
        self.owners: dict[str, Owner] = {}
        self.ports: dict[str, Port] = {}
        self.now = 0.0
        self.reports: list[tuple[str, str]] = []
        self.done: Counter[str] = Counter()

    def thread(self, name: str) -> ThreadSlot:
        if name not in self.slots:
            self.slots[name] = self.dispatcher.add_thread(name, Mailbox())
        return self.slots[name]

    def port(
        self,
        name: str,
        group: str | None = None,
        thread: str | None = None,
        owner: Any = None,
        **options: Any,
    ) -> Port:
        """A port in a thread of its own, unless said otherwise."""
        self.owners[name] = owner or Owner()
        slot = self.thread(thread or name)
        port = self.dispatcher.open_port(slot, name, group or name, self.owners[name], options)
        self.ports[name] = port
        port.stall_watch.now = lambda: self.now
        port.stall_watch.report = lambda what, text: self.reports.append((what, text))
        return port

    def route(
        self,
        source: str,
        *targets: str,
        router: str = "fan-out",
        confirm: bool = False,
        echo: bool = False,
        dead_letters: str = "",
        wants: Callable[[Envelope], bool] | None = None,
        **marks: Any,
    ) -> RouteSpec:
        make, one_of_many, by_content = ROUTERS[router]
        name = f"{source} -> {', '.join(targets)}"
        letters = None
        if dead_letters:
            letters = dead_letter_route(source, name, dead_letters, WaterMarks(**marks), RoundRobin)
            self.dispatcher.add_route(letters)
        spec = RouteSpec(
            name=name,
            source=source,
            targets=targets,
            make_router=make,
            one_of_many=one_of_many,
            by_content=by_content,
            make_filter=(lambda: wants) if wants else None,
            marks=WaterMarks(**marks),
            confirm=confirm,
            echo=echo,
            dead_letters=letters,
        )
        self.dispatcher.add_route(spec)
        return spec

    def turn(self, *threads: str) -> None:
        """Let threads do what was posted to them until nothing is left."""
        names = threads or tuple(self.slots)
        while sum(self.slots[name].mailbox.process() for name in names):
            pass

    def wait(self, seconds: float) -> None:
        """Let time pass, stopping at each deadline of a port."""
        end = self.now + seconds
        while True:
            deadlines = [port.stall_watch.deadline() for port in self.ports.values() if not port.closed]
            due = min((when for when in deadlines if when is not None), default=end)
            if due >= end:
                break
            self.now = max(due, self.now)
            for port in self.ports.values():
                port.check_stalls()
            self.turn()
        self.now = end

    def take(self, name: str, most: int = 1 << 30) -> list[bytes]:
        """Take what has come to a port, a batch at a time."""
        bodies: list[bytes] = []
        self.turn(name) if name in self.slots else self.turn()
        while len(bodies) < most and (taken := self.ports[name].take(most - len(bodies))):
            bodies += [bytes(body) for batch in taken.batches for body in batch.bodies]
        return bodies

    def confirm(self, name: str, count: int) -> None:
        """Confirm so many more of the messages taken, where nothing was taken again."""
        self.done[name] += count
        self.ports[name].confirm_through(self.done[name])

    def send(self, name: str, *bodies: bytes, key: str = "", reply_to: str = "") -> bool:
        """Send a batch from a port."""
        return self.ports[name].send([make_batch(*bodies, key=key, reply_to=reply_to)])

    def close(self) -> None:
        for slot in self.slots.values():
            slot.mailbox.bell.close()


def make_batch(*bodies: bytes, key: str = "", reply_to: str = "") -> Batch:
    if key or reply_to:
        return batch_of(list(bodies), Envelope(key=key, reply_to=reply_to))
    return batch_of(list(bodies))


@pytest.fixture
def system() -> Iterator[System]:
    made = System()
    yield made
    made.close()
