"""Feed: the engine's port to the dispatcher, as the channels see it.

What clients publish is offered to the routes once, if there are any; what comes over routes is
published into the broker, and not offered again (a bridge in both directions would go round for ever).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sized
from typing import TYPE_CHECKING

import msgspec

from kernel.contracts.engine import Port
from kernel.contracts.message import Batch, Envelope, batch_of
from plugins.engines.broker.errors import BrokerError

if TYPE_CHECKING:
    from plugins.engines.broker.virtual_host import VirtualHost

_MOST_A_TURN = 20_000
"""Messages taken from the routes before connections have their turn."""


class Feed:
    """Batches on their way between the broker and the routes."""

    def __init__(
        self, vhost: VirtualHost, default_exchange: str, on_refused: Callable[[str], None] = lambda _: None
    ) -> None:
        self.vhost = vhost
        self._on_refused = on_refused
        self.confirmed = 0
        self.going = True
        """False while a route that blocks is full: publishers are not read."""
        self.messages_out = self.messages_in = self.messages_refused = 0
        self._default_exchange = default_exchange
        self.wanted: Sized = ()
        """The topology's routes from here: with none, nothing is offered."""
        self._port: Port | None = None
        self._waiting: list[Batch] = []
        self._waiting_count = 0
        self._unsafe: deque[tuple[int, int]] = deque()
        """What the store has to reach, and the port's position that waits for it."""
        self._refusing = False
        self._last: Envelope | None = None
        self._last_as: Envelope | None = None
        self._last_at = 0

    def open(self, port: Port) -> None:
        """Use this port."""
        self._port = port
        self.wanted = port.routes

    def offer(self, batch: Batch) -> int:
        """Take a batch for the routes.

        Return the mark that ``confirmed`` must reach, 0 if nobody confirms.
        """
        port = self._open_port()
        self._waiting.append(batch)
        self._waiting_count += len(batch.bodies)
        self.messages_out += len(batch.bodies)
        return port.sent() + self._waiting_count if port.confirms else 0

    def takes(self, envelope: Envelope) -> bool:
        """Whether a route lets messages under this envelope pass."""
        return bool(self.wanted) and self._open_port().wants(envelope)

    def flush(self) -> None:
        """Send what was offered in this turn."""
        if self._waiting:
            batches = self._waiting
            self._waiting = []
            self._waiting_count = 0
            self.going = self._open_port().send(batches)

    def receive(self, now: float) -> bool:
        """Publish what came over routes; return whether there is more."""
        port = self._open_port()
        taken = port.take(_MOST_A_TURN)
        for batch in taken.batches:
            self._publish(batch, now)
        self.messages_in += taken.count
        if taken.position is not None:
            self._take_responsibility(taken.position)
        return port.has_input()

    def _take_responsibility(self, position: int) -> None:
        """The queues have the messages up to here, and answer for them as soon as the store does."""
        store = self.vhost.store
        self._unsafe.append((store.mark, position))
        self._confirm_safe()

    def _confirm_safe(self) -> None:
        unsafe, store = self._unsafe, self.vhost.store
        while unsafe and unsafe[0][0] <= store.safe:
            self._open_port().confirm_through(unsafe.popleft()[1])
        if unsafe:
            store.when_safe(self._confirm_safe)

    def _open_port(self) -> Port:
        assert self._port is not None, "the engine opens its port before it listens"
        return self._port

    def _publish(self, batch: Batch, now: float) -> None:
        envelope = batch.envelope
        if envelope is not self._last or self.vhost.routes.exchange_changes != self._last_at:
            self._last = envelope
            self._last_as = self._admit(envelope)
            self._last_at = self.vhost.routes.exchange_changes
        if self._last_as is None:
            self.messages_refused += len(batch.bodies)
            return
        if batch.multipart:  # messages in queues have one part
            batch = batch_of([b"".join(parts) for parts in batch.bodies])
        try:
            accepted = self.vhost.publish(batch.under(self._last_as), now)
        except BrokerError as refusal:  # what was only for routes before may be for the store now
            self._last_as = None
            self.messages_refused += len(batch.bodies)
            self._on_refused(refusal.text)
            return
        if accepted is not None:
            self._count_refused(self._last_as, len(batch.bodies) - accepted)

    def _count_refused(self, envelope: Envelope, refused: int) -> None:
        """Full queues have refused so many messages of a batch.

        A route cannot be told, so that others are, once until one is taken.
        """
        self.messages_refused += refused
        if refused and not self._refusing:
            self._on_refused(
                f"a full queue with x-overflow = reject-publish refuses messages to exchange {envelope.exchange!r} with key"
                f" {envelope.key!r}, which is nothing that a route can be told: with reject-publish-dlx they are laid aside"
            )
        self._refusing = refused > 0

    def _admit(self, envelope: Envelope) -> Envelope | None:
        """Return the envelope to publish under, or None if it cannot be routed or stored.

        Whether a consumer's protocol can carry it, is found out for each consumer when a queue hands it out.
        """
        exchanges = self.vhost.exchanges
        exchange = envelope.exchange
        if not exchange or exchange not in exchanges:
            exchange = self._default_exchange
        if exchange not in exchanges:
            self._on_refused(f"there is no exchange {exchange!r}")
            return None
        if exchange != envelope.exchange:
            envelope = msgspec.structs.replace(envelope, exchange=exchange)
        try:
            self.vhost.routes.find(envelope)  # it is remembered there
        except Exception as error:  # an application may have put anything into it, a key of octets, say
            self._on_refused(f"messages with key {envelope.key!r:.80}: {error}")
            return None
        return envelope
