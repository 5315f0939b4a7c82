"""Engine: a broker that fails when it is told to.  The kind ``test-broker``, for tests only.

It is an engine of its own, derived from that of brokers, so that a broker that serves users
has no code for faults.

The operation ``fault`` has a mapping as its argument, with ``do`` (a name in ``_DO``) and what belongs to it.
``brokers.py`` has the same as methods for a test.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import trio

from kernel.contracts.engine import Host
from kernel.contracts.errors import KernelError
from plugins.engines.broker.faults.clock import FastHost
from plugins.engines.broker.faults.control import LINGER, FaultControl
from plugins.engines.broker.faults.cut import names_of
from plugins.engines.broker.faults.disk import FaultyDisk, FullDiskAlarm
from plugins.engines.broker.faults.model import FaultyModel, FaultyQueue
from plugins.engines.broker.front_end import Client
from plugins.engines.broker.host.engine import BrokerEngine
from plugins.engines.broker.host.stream_client import StreamClient

Asked = Mapping[str, Any]


class FaultyEngine(BrokerEngine):
    """A broker with faults on demand."""

    broker_type = FaultyModel
    control: FaultControl
    clock: FastHost

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.disk: FaultyDisk = FaultyDisk()
        self._lingering: set[StreamClient] = set()
        """Clients that have had their last message, and for which a timer is set."""

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        """Serve until cancelled, by a clock that can be set forward."""
        self.clock = FastHost(host)
        self.disk.belongs_to_this_thread()
        try:
            await super().run(self.clock, task_status=task_status)
        finally:
            self.clock.end()

    def _open(self, host: Host) -> None:
        super()._open(host)
        model = self.broker
        assert isinstance(model, FaultyModel), "``broker_type`` says so"
        self.control = model.control
        self.feed.make_confirms = self.control.make_confirms
        alarms = self.alarm_watch.alarms
        alarms.alarms = [*alarms.alarms, FullDiskAlarm(self.disk)]

    def time_of_day(self) -> float:
        """Return the time of day by the same clock."""
        return super().time_of_day() + self.clock.ahead

    # Clients

    def add(self, client: Client, on_ended: Callable[[], None]) -> None:
        """A front end has a new client."""
        super().add(client, on_ended)
        if isinstance(client, StreamClient):
            self.control.clients[client.window] = client
            # Whoever publishes or acknowledges does so while its input is processed.
            client.received = partial(self._received, client, client.received)  # type: ignore[method-assign]

    def has_ended(self, client: Client, reason: str) -> None:
        """A client has ended."""
        self.control.has_ended(client)
        super().has_ended(client, reason)

    def _received(
        self, client: StreamClient, received: Callable[[bytes, float], object], data: bytes, now: float
    ) -> None:
        # Nothing is returned: each read is a turn, at the end of which connections are lost.
        if client in self.control.doomed:
            # It has had its last message.
            self.control.doomed[client] = True
            return
        self.control.current = client
        try:
            received(data, now)
        finally:
            self.control.current = None

    # Turns

    def finish_turn(self, now: float) -> None:
        """End the turn, and lose the connections whose number is reached."""
        # Before the turn ends, so that nothing more is written to those who are lost at once; and behind it,
        # because what was delivered may have brought others to their number.
        self._lose_doomed()
        super().finish_turn(now)
        self._lose_doomed()
        for client in self.control.doomed.keys() - self._lingering:
            self._lingering.add(client)
            self.clock.set_timer(now + LINGER, partial(self._on_lingered, client), client)

    def _lose_doomed(self) -> None:
        for client in [each for each, at_once in self.control.doomed.items() if at_once]:
            self.busy.pop(client, None)
            self.control.lose(client)

    def _on_lingered(self, client: StreamClient) -> None:
        self._lingering.discard(client)
        if client in self.control.doomed:
            self.control.lose(client)
            self.finish_turn(self.host.now())

    # Operations

    def operate(self, what: str, argument: Any) -> Any:
        """Do what an operator wants; ``fault``: what a test wants."""
        if what != "fault":
            return super().operate(what, argument)
        do = _DO.get(argument["do"])
        if do is None:
            raise KernelError(f"there is no fault {argument['do']!r}; faults: {', '.join(_DO)}")
        return do(self, argument)


def _places(engine: FaultyEngine, asked: Asked) -> dict[str, Any]:
    """Say where each front end listens."""
    return {
        "places": [
            {"protocol": getattr(each, "protocol", ""), "address": getattr(each, "address", "")}
            for each in engine.front_ends
        ]
    }


def _connections(engine: FaultyEngine, asked: Asked) -> dict[str, Any]:
    """Say who is connected."""
    return {
        "rows": [
            {"names": sorted(names_of(client)), "state": row["state"]}
            for client in engine.control.clients.values()
            for row in client.inspect("connections")
        ]
    }


def _records(engine: FaultyEngine, asked: Asked) -> dict[str, Any]:
    return {"rows": engine.control.record.rows(asked["what"])}


def _cut(engine: FaultyEngine, asked: Asked) -> dict[str, Any]:
    return {"number": engine.control.add_cut(asked["client"], asked["of"], asked["after"])}


def _cut_now(engine: FaultyEngine, asked: Asked) -> dict[str, Any]:
    wanted = asked["client"]
    found = [each for each in list(engine.control.clients.values()) if not wanted or wanted in names_of(each)]
    if not found:
        known = sorted({name for each in engine.control.clients.values() for name in names_of(each)})
        raise KernelError(
            f"no client is connected that is called {wanted!r}; names: {', '.join(known) or 'none'}"
        )
    for client in found:
        engine.control.lose(client)
    engine.finish_turn(engine.host.now())
    return {"peers": [client.peer for client in found]}


def _end_cut(engine: FaultyEngine, asked: Asked) -> dict[str, Any]:
    engine.control.end_cut(asked["number"])
    return {}


def _peer_of(engine: FaultyEngine, asked: Asked) -> dict[str, Any]:
    return {"peer": engine.control.peer_of(asked["number"])}


def _refuse(engine: FaultyEngine, asked: Asked) -> dict[str, Any]:
    engine.control.refuses_publishes = asked["publishes"]
    engine.admits_connections = not asked["connections"]
    return {}


def _redeliver(engine: FaultyEngine, asked: Asked) -> dict[str, Any]:
    now = engine.host.now()
    name = asked["queue"]
    queues = [
        queue
        for vhost in engine.broker.vhosts.values()
        for queue in vhost.queues.values()
        if isinstance(queue, FaultyQueue) and name in ("", queue.name)
    ]
    count = sum(queue.deliver_again(now) for queue in queues)
    engine.finish_turn(now)
    return {"messages": count}


def _freeze(engine: FaultyEngine, asked: Asked) -> dict[str, Any]:
    """Stop the thread until an event is set, which only a test in this process can do."""
    # Later: this turn has to answer first.
    engine.host.soon(asked["until"].wait)
    return {}


def _slow_disk(engine: FaultyEngine, asked: Asked) -> dict[str, Any]:
    engine.disk.be_slow(asked["seconds"])
    return {}


def _full_disk(engine: FaultyEngine, asked: Asked) -> dict[str, Any]:
    engine.disk.full = asked["full"]
    engine.alarm_watch.check(engine.host.now())
    return {}


def _advance(engine: FaultyEngine, asked: Asked) -> dict[str, Any]:
    engine.clock.advance(asked["seconds"])
    now = engine.host.now()
    if asked["silence"]:
        # Before the test has its answer: a client that sends something in the next turn is
        # not silent any more.
        engine.clock.fire_due()
    else:
        for client in engine.control.clients.values():
            client.on_not_read(now)
    engine.broker.handle_timeout(now)
    engine.finish_turn(now)
    return {}


def _die(engine: FaultyEngine, asked: Asked) -> dict[str, Any]:
    """Copy the data directory as it is now, and lose all connections.

    What happens afterwards does not count.
    """
    if asked["copy"]:
        shutil.copytree(Path(engine.options.data_dir), asked["copy"])
    engine.admits_connections = False
    for client in list(engine.control.clients.values()):
        engine.control.lose(client)
    return {}


_DO: dict[str, Callable[[FaultyEngine, Asked], dict[str, Any]]] = {
    "advance": _advance,
    "connections": _connections,
    "cut": _cut,
    "cut-now": _cut_now,
    "die": _die,
    "end-cut": _end_cut,
    "freeze": _freeze,
    "full-disk": _full_disk,
    "peer-of": _peer_of,
    "places": _places,
    "records": _records,
    "redeliver": _redeliver,
    "refuse": _refuse,
    "slow-disk": _slow_disk,
}
