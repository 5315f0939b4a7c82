"""Consumer and intake: what the server delivers on its way to the routes, and the acknowledgements back."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from kernel.contracts.message import Run
from plugins.engines.amqp_client.options import ConsumeOptions
from plugins.engines.amqp_client.role import Role
from plugins.protocols.amqp091.events import Delivered
from plugins.protocols.amqp091.methods import basic
from plugins.protocols.amqp091.methods.method import Method

if TYPE_CHECKING:
    from plugins.engines.amqp_client.session import Session


class Subscription(msgspec.Struct, gc=False):
    """One life of a consumer's channel: its delivery tags mean nothing on the next."""

    channel: int
    no_ack: bool
    alive: bool = True


class Consumer(Role):
    """Consumes from one queue, on a channel of its own."""

    def __init__(self, session: Session, channel: int, options: ConsumeOptions) -> None:
        super().__init__(session, channel, f"consuming from {options.queue!r}")
        self._options = options
        self._subscription = Subscription(channel, options.no_ack)

    def opened(self) -> None:
        """Ask for the queue's messages."""
        options = self._options
        if not options.no_ack:
            self.send(basic.Qos(prefetch_count=options.prefetch))
        self.send(
            basic.Consume(
                queue=options.queue,
                # Shown by the server's tools; told apart by the channel.
                consumer_tag=self.session.name[:200],
                no_ack=options.no_ack,
                exclusive=options.exclusive,
                arguments=options.arguments,
            )
        )

    def received(self, method: Method) -> None:
        """The server begins, or will deliver no more: the queue is gone, or has moved."""
        if isinstance(method, basic.ConsumeOk):
            self.up = True
        elif isinstance(method, basic.Cancel):
            self.up = False
            if not method.nowait:
                self.send(basic.CancelOk(consumer_tag=method.consumer_tag))
            self.session.start_later(self, "cancelled", f"{self.name}: the server has cancelled it")

    def delivered(self, event: Delivered) -> None:
        """Messages have come."""
        self.backoff.succeeded()
        last = event.first_delivery_tag + len(event.run.bodies) - 1
        self.session.intake.arrived(self._subscription, last, event.run)

    def lost(self) -> None:
        """What is not acknowledged will be delivered again."""
        super().lost()
        self._subscription.alive = False
        self._subscription = Subscription(self.channel, self._options.no_ack)


class Intake:
    """Hands over what all consumers get, in order.

    A port that is full gets no more until it says so, and the server gets no acknowledgement of what waits
    here: with its prefetch used up it stops by itself.  So the socket is read on, and heartbeats, confirms and
    closes are never behind messages that nobody takes.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.going = True
        self._arrived: list[tuple[Subscription, int, Run]] = []
        self._handed_over: deque[tuple[int, Subscription, int, int]] = deque()
        """What waits for the routes: the port's count at its end, whose, its last delivery tag, its size."""

    def arrived(self, subscription: Subscription, last_tag: int, run: Run) -> None:
        """Keep a run until the end of the turn."""
        self._arrived.append((subscription, last_tag, run))
        self._session.counters.messages_in += len(run.bodies)

    def flush(self) -> None:
        """Hand over what has arrived."""
        if not self._arrived or not self.going:
            return
        # What came on a channel that has ended since comes again.
        arrived = [item for item in self._arrived if item[0].alive or item[0].no_ack]
        self._arrived = []
        port = self._session.port
        confirms = port.confirms
        mark = port.sent()
        self.going = port.send([run for _, _, run in arrived])
        done: dict[int, int] = {}
        for subscription, last_tag, run in arrived:
            size = len(run.bodies)
            mark += size if confirms else 0
            if subscription.no_ack:
                continue
            if confirms or self._handed_over:
                self._handed_over.append((mark, subscription, last_tag, size))
            else:
                done[subscription.channel] = last_tag
        self._acknowledge(done)

    def confirmed(self, count: int) -> None:
        """The routes have confirmed the first ``count`` messages that the port ever sent."""
        done: dict[int, int] = {}
        waiting = self._handed_over
        while waiting:
            mark, subscription, last_tag, size = waiting[0]
            if mark > count:
                if mark - size < count and subscription.alive:  # a part of it
                    done[subscription.channel] = last_tag - (mark - count)
                break
            waiting.popleft()
            if subscription.alive:
                done[subscription.channel] = last_tag
        self._acknowledge(done)

    def end(self) -> None:
        """The connection has ended: what nobody will send again must not be dropped, full or not."""
        left = [run for subscription, _, run in self._arrived if subscription.no_ack]
        self._arrived = []
        self._handed_over.clear()
        if left:
            self._session.port.send(left)

    def _acknowledge(self, done: dict[int, int]) -> None:
        for channel, tag in done.items():
            self._session.connection.send_acknowledgement(channel, tag, multiple=True)
