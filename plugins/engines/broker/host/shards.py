"""Shards: a broker whose virtual hosts are in several threads, each an engine of its own (decision 45).

The first shard listens and knows where each virtual host is.  A client that opens one of another shard is
handed over with its socket and all that it has sent; the other shard gives these bytes to a new session
(``StreamFrontEnd.go_on``).  So what is kept here is which shard has what, and the wires whose bytes cannot
move, because TLS or WebSocket is in between: they are passed on over a socketpair (``_Relay``).

What an operator asks of the first shard is passed on as well: to the shard that has the virtual host, or to
all if it concerns users.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Generator, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kernel.contracts.errors import KernelError
from kernel.hosting.connection import Connection, ConnectionOwner, Pause
from kernel.hosting.wire import PlainWire, Wire
from plugins.engines.broker.host.tables import shard_name

if TYPE_CHECKING:
    from kernel.contracts.system import System
    from plugins.engines.broker.host.engine import BrokerEngine
    from plugins.engines.broker.host.options import BrokerOptions

_NUMBERED = ("tap", "walk")
"""Keys with the number of something that an operation has begun, and others go on with."""
_SHARD = 1 << 32
"""Such a number has the place of its shard above it; none for the first one's own."""
_IN_ALL = ("users", "global_parameters")
"""Definitions that every shard has; each of the others has a virtual host, and is in one shard."""
_IN_ALL_TABLES = ("users", "accounts", "global-parameters")
"""Tables of which every shard has all rows."""

FOR_ALL = ("import-definitions", "delete-definitions", "close-connection")
"""Operations that concern every shard: each does what is its own."""


class Shards:
    """The other shards of a broker, as the first one sees them.  Used in the thread of its engine."""

    def __init__(self, engine: BrokerEngine, system: System) -> None:
        self._engine = engine
        self._system = system
        self._relays: set[_Relay] = set()

    def names(self) -> Iterable[str]:
        """Return the engines of the other shards."""
        threads = dict.fromkeys(self._engine.options.shards.values())
        return [shard_name(self._engine.name, thread) for thread in threads]

    def of(self, vhost: str) -> str | None:
        """Return the engine of the shard that has a virtual host; None: this one has it, or none."""
        thread = self._engine.options.shards.get(vhost)
        return None if thread is None else shard_name(self._engine.name, thread)

    def hand_over(self, shard: str, wire: Wire, what: Mapping[str, Any]) -> None:
        """Give a client's wire to another shard, which nobody uses any more here.

        ``KernelError`` if that shard is away; the wire is closed.
        """
        connected = wire.connected
        assert connected is not None
        if isinstance(wire, PlainWire):
            self._give(shard, what, connected)
            return
        # The state of TLS or WebSocket cannot be given away, so this process goes on with it and passes the
        # bytes on.
        near, far = socket.socketpair()
        try:
            self._give(shard, what, far)
        except KernelError:
            near.close()
            wire.close()
            raise
        self._relays.add(_Relay(self._engine, wire, PlainWire(near), self._relays.discard))

    def _give(self, shard: str, what: Mapping[str, Any], connected: socket.socket) -> None:
        try:
            self._system.hand_over(shard, what, connected)
        except KernelError:
            connected.close()
            raise

    def close(self) -> None:
        """Close the wires whose bytes are passed on."""
        for relay in list(self._relays):
            relay.close("the broker is shut down")

    # ------------------------------------------------------------------ operators

    def passed_on(self, what: str, argument: Any) -> Generator[Any, None, Any] | None:
        """Return the steps of an operation that concerns another shard; None: it is this one's alone."""
        if what in FOR_ALL:
            return self._for_all(what, argument)
        if not isinstance(argument, Mapping):
            return None
        # Before the virtual host: whoever goes on with a tap or a list names its number only.
        for key in _NUMBERED:
            number = argument.get(key)
            if isinstance(number, int) and number >= _SHARD:
                place, number = divmod(number, _SHARD)
                return self._ask(list(self.names())[place - 1], what, {**argument, key: number})
        vhost = argument.get("vhost")
        shard = self.of(vhost) if isinstance(vhost, str) else None
        return None if shard is None else self._ask(shard, what, argument)

    def _ask(self, shard: str, what: str, argument: Any) -> Generator[Any, None, Any]:
        done: list[tuple[Any, KernelError | None]] = []

        def ask(go_on: Callable[[], None]) -> None:
            def on_done(answer: Any, failure: KernelError | None) -> None:
                done.append((answer, failure))
                go_on()

            self._system.operate(shard, what, argument, self._engine.host, on_done)

        yield ask
        answer, failure = done[0]
        if failure is not None:
            raise failure
        if isinstance(answer, Mapping):
            # The number is unique in its shard only. With the place above it the first shard finds the way
            # back.
            place = list(self.names()).index(shard) + 1
            numbered = {key: answer[key] for key in _NUMBERED if isinstance(answer.get(key), int)}
            answer = {**answer, **{key: place * _SHARD + number for key, number in numbered.items()}}
        return answer

    def _for_all(self, what: str, argument: Any) -> Generator[Any, None, Any]:
        answers: list[Any] = []
        failures: list[KernelError] = []
        ask: list[Callable[[], Generator[Any, None, Any]]] = [partial(self._here, what, argument)]
        ask += [partial(self._ask, shard, what, argument) for shard in self.names()]
        for each in ask:
            try:
                answers.append((yield from each()))
            except KernelError as failure:
                failures.append(failure)
        # A connection is at one of them, and the others say that they have none.  A change that one of them
        # has not made is an error of the whole.
        if failures and not (what == "close-connection" and answers):
            raise failures[-1]
        return _merged(answers)

    def _here(self, what: str, argument: Any) -> Generator[Any, None, Any]:
        # Not ``operate``, which would pass it on again.
        answer = self._engine.operate_here(what, argument)
        if isinstance(answer, Generator):
            answer = yield from answer
        return answer


def _merged(answers: list[dict[str, Any]]) -> dict[str, Any]:
    """Add up the answers of several shards.

    Numbers are summed, lists joined, and flags hold if all say so.
    """
    merged: dict[str, Any] = dict(answers[0])
    for answer in answers[1:]:
        for key, value in answer.items():
            before = merged.get(key)
            if isinstance(value, bool):
                merged[key] = bool(before) and value
            elif isinstance(value, int):
                merged[key] = (before or 0) + value
            elif isinstance(value, list):
                merged[key] = list(dict.fromkeys([*(before or ()), *value]))
            elif isinstance(value, dict):
                merged[key] = {
                    name: count if name in _IN_ALL else count + (before or {}).get(name, 0)
                    for name, count in value.items()
                }
    return merged


def of_one_broker(
    name: str, options: BrokerOptions, what: str, rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the rows of a table as those of one broker: the first shard's name, and each thing once."""
    if not options.shard:
        return [row for row in rows if "vhost" not in row or options.has(row["vhost"])]
    # The first shard shows them; each of the others has the same rows.
    if what in _IN_ALL_TABLES:
        return []
    first = name.removesuffix(shard_name("", options.shard))
    return [
        {**row, "engine": first, "shard": name}
        for row in rows
        if "vhost" not in row or options.has(row["vhost"])
    ]


class _Relay:
    """Passes bytes on between a client's wire and the shard that has the client."""

    def __init__(
        self, engine: BrokerEngine, client: Wire, shard: Wire, on_over: Callable[[_Relay], None]
    ) -> None:
        self._on_over = on_over
        near, far = _Side(), _Side()
        near.connection = Connection(engine.host, client, near, answers_limit=None)
        far.connection = Connection(engine.host, shard, far, answers_limit=None)
        near.other, far.other = far, near
        self._sides = (near, far)
        for side in self._sides:
            side.over = self._over
            side.connection.start()

    def close(self, reason: str) -> None:
        """End both."""
        for side in self._sides:
            side.connection.end(reason)

    def _over(self) -> None:
        if all(side.connection.ended for side in self._sides):
            self._on_over(self)


class _Side(ConnectionOwner):
    """One of the two connections of a relay.  It reads as fast as the other one writes."""

    connection: Connection
    other: _Side
    over: Callable[[], None]

    def on_data(self, data: bytes, now: float) -> None:
        """Pass it on."""
        self.other.connection.send((data,))
        # Otherwise a side that reads slowly would have all that the other one sends in memory.
        if self.other.connection.writing:
            self.connection.pause(Pause.ROUTES_FULL)

    def on_eof(self, now: float) -> None:
        """Pass the end on, after all that came before it."""
        self.connection.end("the end was passed on")

    def on_written(self) -> None:
        """There is room again."""
        if not self.connection.writing:
            self.other.connection.resume(Pause.ROUTES_FULL)

    def on_ended(self, reason: str) -> None:
        """One side has ended: so does the other, when it has written what it has."""
        if not self.other.connection.ended:
            self.other.connection.close(reason)
        self.over()
