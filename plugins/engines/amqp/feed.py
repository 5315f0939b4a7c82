"""Feed: the engine's port to the dispatcher, as the channels see it.

What clients publish is offered to the routes once, if there are any; what comes over routes is
published into the broker, and not offered again (a bridge in both directions would go round for ever).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import msgspec

from kernel.contracts.engine import Port
from kernel.contracts.message import PLAIN, Run

if TYPE_CHECKING:
    from plugins.engines.broker.virtual_host import VirtualHost

_MOST_A_TURN = 20_000
"""Messages taken from the routes before connections have their turn."""


class Feed:
    """Runs on their way between the broker and the routes."""

    def __init__(self, vhost: VirtualHost, default_exchange: str) -> None:
        self.vhost = vhost
        self.confirmed = 0
        self.going = True
        """False while a route that blocks is full: publishers are not read."""
        self.messages_out = self.messages_in = 0
        self._default_exchange = default_exchange
        self.wanted: Collection[Any] = ()
        """The topology's routes from here: with none, nothing is offered."""
        self._port: Port | None = None
        self._waiting: list[Run] = []
        self._waiting_count = 0
        self._strange = self._readdressed = PLAIN

    def open(self, port: Port) -> None:
        """Use this port."""
        self._port = port
        # Not in the contract: a port that does not tell its routes is offered everything.
        self.wanted = getattr(port, "routes", (port,))

    def offer(self, run: Run) -> int:
        """Take a run for the routes; return the mark that ``confirmed`` must reach, 0 if nobody confirms."""
        port = self._open_port()
        self._waiting.append(run)
        self._waiting_count += len(run.bodies)
        self.messages_out += len(run.bodies)
        return port.sent() + self._waiting_count if port.confirms else 0

    def flush(self) -> None:
        """Send what was offered in this turn."""
        if self._waiting:
            runs = self._waiting
            self._waiting = []
            self._waiting_count = 0
            self.going = self._open_port().send(runs)

    def receive(self, now: float) -> bool:
        """Publish what came over routes; return whether there is more."""
        port = self._open_port()
        runs = port.take(_MOST_A_TURN)
        count = 0
        for run in runs:
            self._publish(run, now)
            count += len(run.bodies)
        self.messages_in += count
        if count:
            # The queues have them: they answer for them from here on.
            port.confirm(count)
        return port.has_input()

    def _open_port(self) -> Port:
        assert self._port is not None, "the engine opens its port before it listens"
        return self._port

    def _publish(self, run: Run, now: float) -> None:
        envelope = run.envelope
        if run.multipart:
            bodies = [b"".join(parts) for parts in run.bodies]
            run = Run(bodies, run.size, envelope)
        if (not envelope.exchange and not self._default_exchange) or (
            envelope.exchange in self.vhost.exchanges and envelope.exchange
        ):
            self.vhost.publish(run, now)
        else:
            self._publish_elsewhere(run, now)

    def _publish_elsewhere(self, run: Run, now: float) -> None:
        """The exchange that the message names is not here (it may be named after another broker's)."""
        if self._default_exchange and self._default_exchange not in self.vhost.exchanges:
            self.vhost.messages_unrouted += len(run.bodies)
            return
        if run.envelope is not self._strange:
            self._strange = run.envelope
            self._readdressed = msgspec.structs.replace(run.envelope, exchange=self._default_exchange)
        self.vhost.publish(Run(run.bodies, run.size, self._readdressed), now)
