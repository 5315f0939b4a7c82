"""Feed: the engine's port to the dispatcher, as publishers see it.

Out: what clients publish is offered to the routes once, if there are any, and sent at the end of the turn.
In: what comes over routes is published into the broker, and not offered to the routes again.  A bridge in
both directions would otherwise pass each message back and forth for ever.

Confirmations are by position in both directions.  Out: a publish waits for a mark, the port's position after
its last message, and ``confirmed`` is how far the routes have come.  In: the port says with each ``take`` at
which position it stands, and that position is confirmed when the store has what the queues took.  Positions
are absolute, so one that comes late, for a route that has gone, names what nobody waits for any more, and the
port ignores it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sized
from typing import TYPE_CHECKING

import msgspec

from kernel.contracts.engine import Port
from kernel.contracts.message import Batch, Envelope, batch_of
from plugins.engines.broker.errors import BrokerError
from plugins.engines.broker.host.confirms import Confirms

if TYPE_CHECKING:
    from plugins.engines.broker.virtual_host import VirtualHost

_MOST_A_TURN = 20_000
"""Messages that are taken from the routes in one turn.  Connections have theirs in between."""


class Feed:
    """Passes batches between the broker and the routes, in both directions."""

    def __init__(
        self, vhost: VirtualHost, default_exchange: str, on_refused: Callable[[str], None] = lambda _: None
    ) -> None:
        self.vhost = vhost
        self._on_refused = on_refused
        self.make_confirms: Callable[[], Confirms] = Confirms
        """Makes what counts the confirmations of a publisher."""
        self.confirmed = 0
        self.going = True
        """False while a route that blocks is full: publishers are not read."""
        self.messages_out = self.messages_in = self.messages_refused = 0
        self._default_exchange = default_exchange
        self.wanted: Sized = ()
        """The topology's routes from here: with none, nothing is offered."""
        self._port: Port | None = None
        self.waiting: list[Batch] = []
        """What was offered in this turn."""
        self._waiting_count = 0
        """Messages in ``waiting``: the port counts what it has sent, and this is not sent yet."""
        self._unsafe: deque[tuple[int, int]] = deque()
        """What the store has to reach, and the port's position that waits for it."""
        self._refusing = False
        # One envelope is remembered, because batches of a route come in sequences under the same one.
        self._last: Envelope | None = None
        self._last_as: Envelope | None = None
        """What ``_last`` is published as; None: it is refused."""
        self._last_at = 0
        """The number of changes of exchanges after which it was decided."""

    def open(self, port: Port) -> None:
        """Use this port."""
        self._port = port
        self.wanted = port.routes

    def offer(self, batch: Batch) -> int:
        """Take a batch for the routes.

        Return the mark that ``confirmed`` must reach, 0 if nobody confirms.
        """
        port = self._open_port()
        self.waiting.append(batch)
        self._waiting_count += len(batch.bodies)
        self.messages_out += len(batch.bodies)
        # The position that the last message of this batch will have.
        return port.sent() + self._waiting_count if port.confirms else 0

    def takes(self, envelope: Envelope) -> bool:
        """Whether a route lets messages under this envelope pass."""
        return bool(self.wanted) and self._open_port().wants(envelope)

    def flush(self) -> None:
        """Send what was offered in this turn."""
        if self.waiting:
            batches = self.waiting
            self.waiting = []
            self._waiting_count = 0
            # The port takes them whatever it answers.  False: a pipe that blocks is full, so send no more
            # until ``BrokerEngine.on_writable``.
            self.going = self._open_port().send(batches)

    def receive(self, now: float) -> bool:
        """Publish what came over routes; return whether there is more."""
        port = self._open_port()
        taken = port.take(_MOST_A_TURN)
        for batch in taken.batches:
            self._publish(batch, now)
        self.messages_in += taken.count
        # None: nobody waits for a confirmation of these messages.
        if taken.position is not None:
            self._take_responsibility(taken.position)
        return port.has_input()

    def _take_responsibility(self, position: int) -> None:
        """The queues have the messages up to here, and answer for them as soon as the store does."""
        # The mark is that of everything given to the store so far, the messages just taken among them.
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
        # Queues, the store and the front ends know messages of one part only.
        if batch.multipart:
            batch = batch_of([b"".join(parts) for parts in batch.bodies])
        try:
            accepted = self.vhost.publish(batch.under(self._last_as), now)
        except BrokerError as refusal:
            # Admitted when it reached no durable queue.  A binding may have been added since, and the store
            # cannot write the envelope.
            self._last_as = None
            self.messages_refused += len(batch.bodies)
            self._on_refused(refusal.text)
            return
        # Below 0: REPEATED, which was accepted before.
        if accepted is not None and accepted >= 0:
            self._count_refused(self._last_as, len(batch.bodies) - accepted)

    def _count_refused(self, envelope: Envelope, refused: int) -> None:
        """Full queues have refused so many messages of a batch.

        A route cannot be told, so the operator is: once, until a queue takes a message again.
        """
        self.messages_refused += refused
        if refused and not self._refusing:
            self._on_refused(
                f"a full queue with x-overflow = reject-publish refuses messages to exchange"
                f" {envelope.exchange!r} with key {envelope.key!r}.  They are lost, because a route cannot be"
                f" told.  Use reject-publish-dlx to have them dead-lettered"
            )
        self._refusing = refused > 0

    def exchange_of(self, name: str) -> str:
        """Return the exchange to which a message of the routes goes that names this one."""
        return name if name and name in self.vhost.exchanges else self._default_exchange

    def _admit(self, envelope: Envelope) -> Envelope | None:
        """Return the envelope to publish under, or None if it cannot be routed or stored.

        Whether a consumer's protocol can carry it is found out for each consumer at the delivery.
        """
        exchanges = self.vhost.exchanges
        exchange = self.exchange_of(envelope.exchange)
        if exchange not in exchanges:
            self._on_refused(f"there is no exchange {exchange!r}")
            return None
        if exchange != envelope.exchange:
            envelope = msgspec.structs.replace(envelope, exchange=exchange)
        try:
            # The answer is cached there, so the publish that follows finds it with one lookup.
            self.vhost.routes.find(envelope)
        except Exception as error:
            # Envelopes of the routes are made by applications, which are not checked as clients are: the key
            # may be octets, or a header of a type that no matcher knows.  One such message must not end the
            # broker.
            self._on_refused(f"messages with key {envelope.key!r:.80}: {error}")
            return None
        return envelope
