"""Session: one connection of a federation link, from login to its end.

Channel 1 declares, as in every session of the AMQP client.  Each consumer has a channel of its own after it,
so that a refusal of one does not disturb the others.

What is declared is a function of the state of the broker here (``_requests``).  Whenever that state changes,
the requests for the difference are made, unless earlier ones are on their way: then ``_changed`` remembers
it, and the next requests are made when those are confirmed.  If a request is refused, the server closes
channel 1, and it is not known which of the later requests were carried out.  So everything is declared
again: a declaration of what exists with the same properties changes nothing.

Requests and their results are kept separately.  ``_asked`` has the queues whose declaration was sent, so that
it is not sent twice; ``_there`` those whose declaration was confirmed, so that they can be consumed from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from plugins.engines.amqp_client.declarations import Request
from plugins.engines.amqp_client.link import Link
from plugins.engines.amqp_client.session import Session
from plugins.engines.broker.topology_observers import QueueState
from plugins.engines.federation.consumers import LOW_PRIORITY, ExchangeConsumer, LinkConsumer, QueueConsumer
from plugins.engines.federation.trace import Place, wanted_upstream
from plugins.engines.federation.upstream_exchange import UpstreamExchange
from plugins.protocols.amqp091.connection import ClientConnection
from plugins.protocols.amqp091.events import ConnectionOpened
from plugins.protocols.amqp091.methods import queue
from plugins.protocols.amqp091.reply_codes import ReplyCode

if TYPE_CHECKING:
    from plugins.engines.federation.engine import Federation


class FederationSession(Session):
    """Declares upstream what is wanted here, again whenever that changes, and consumes it."""

    def __init__(
        self, federation: Federation, link: Link, connection: ClientConnection, finish: Callable[[], None]
    ) -> None:
        super().__init__(link, connection, finish, federation.port, self._requests)
        self.federation = federation
        self.options = federation.options
        self.here = federation.here
        self.upstream = Place(self.options.upstream_name, self.options.vhost)
        self._changed = False
        """Whether something has changed here since the last requests were made."""
        self._logged_in = False
        self._asked: set[str] = set()
        """Queues whose declaration was sent upstream."""
        self._there: set[str] = set()
        """Queues whose declaration the upstream has confirmed."""
        self._exchanges = [
            UpstreamExchange(name, self.here, self.options, federation.as_they_are)
            for name in self.options.exchanges
        ]
        # Channel 1 declares.  Each consumer has a channel, since the server closes the channel of a request
        # that it refuses.
        self._links: list[LinkConsumer] = [
            ExchangeConsumer(self, 2 + at, each.queue, each.name) for at, each in enumerate(self._exchanges)
        ]
        first = 2 + len(self._links)
        self._links += [
            QueueConsumer(self, first + at, name, name, LOW_PRIORITY)
            for at, name in enumerate(self.options.queues)
        ]
        self.add(self._links)

    @property
    def stops_reading(self) -> bool:
        """Whether to stop reading: nothing else slows down an upstream that waits for no acknowledgements.

        With acknowledgements the prefetch does, and the socket is read, for heartbeats and closes.
        """
        return self.options.no_ack and not self.inbound.going

    def step(self) -> dict[str, str]:
        """Return the name of the upstream in traces."""
        # RabbitMQ writes the address in this form, without user and password.
        scheme, _, place = self.link.peer.partition("://")
        return {
            "uri": f"{'amqps' if scheme.endswith('tls') else 'amqp'}://{place}",
            "virtual_host": self.options.vhost,
        }

    def opened(self, event: ConnectionOpened) -> None:
        """Logged in; the upstream has told its name."""
        # RabbitMQ and this kernel send their names.  The trace of a message has such names.
        name = event.server_properties.get("cluster_name")
        if isinstance(name, str) and name:
            self.upstream = Place(name, self.options.vhost)
        # A broker that is its own upstream would send each message to itself.  Only names distinguish
        # brokers, so two with the same name are refused, too.
        if self.upstream == self.here:
            text = f"broker {self.here.cluster!r} is its own upstream: each needs a cluster_name of its own"
            self.connection.close(ReplyCode.NOT_ALLOWED, text)
            self.end(text)
            return
        self._logged_in = True
        super().opened(event)

    def look(self) -> None:
        """Start or stop consumers, by what is wanted."""
        for each in self._links:
            each.look()

    def is_there(self, queue: str) -> bool:
        """Whether a queue is declared upstream."""
        return queue in self._there

    def is_gone(self, queue: str) -> None:
        """A queue upstream was deleted: declare it again, and its bindings."""
        self._forget(queue)
        # Requests that are on their way were made before this was known, and do not declare it.
        self._changed = True

    def _forget(self, queue: str) -> None:
        self._asked.discard(queue)
        self._there.discard(queue)

    def deleted(self, queue: str) -> None:
        """A queue here was deleted."""
        for each in self._links:
            each.deleted(queue)

    def changed(self) -> None:
        """Exchanges, queues or bindings here have changed."""
        # Consumers that are not wanted any more stop at once, before the requests are answered.
        self.look()
        self._changed = True
        # A connection that is closing, or has not logged in, takes no requests.  The next one declares
        # everything.
        if self._logged_in and not self.ended:
            self.declarations.declare()

    def declared(self) -> None:
        """All declarations that were sent have been confirmed."""
        self._there = set(self._asked)
        for each in self._exchanges:
            each.declared()
        # Opens the channels of consumers that wait for this, which then look themselves.
        super().declared()
        self.look()
        if self._changed:
            self.declarations.declare()

    def declaration_refused(self, what: str, code: int) -> None:
        """Handle a refusal.

        What exists with other properties is used as it is: it is declared passively from now on.  What was
        used as it is and has been deleted since is declared with our properties again.
        """
        if code == ReplyCode.PRECONDITION_FAILED:
            self.federation.as_they_are.add(what)
        elif code == ReplyCode.NOT_FOUND:
            self.federation.as_they_are.discard(what)

    def stopped(self, count: int) -> None:
        """Count and drop messages that have been here before or have passed too many links."""
        self.federation.messages_stopped += count

    def _requests(self, _: str) -> list[Request]:
        self._changed = False
        # The channel is new, or was closed by a refusal: nothing is known about earlier requests.
        if not self.declarations.up:
            self._asked.clear()
        requests: list[Request] = []
        for each in self._exchanges:
            state = self.federation.exchanges[each.name]
            # Without its broker the exchange is absent, too.  But then it may come back with the broker, and
            # what waits upstream is for its queues: nothing is deleted.
            if not self.federation.broker_is_there:
                each.leave()
            elif each.queue not in self._asked:
                each.forget()
            if state is None:
                requests += each.removal()
                self._forget(each.queue)
            else:
                self._asked.add(each.queue)
                hops = self.options.max_hops
                wanted = wanted_upstream(state.bindings, self.here, each.name, self.upstream, hops)
                requests += each.requests(state, wanted)
        for name, here in self.federation.queues.items():
            if here is not None and name not in self._asked:
                self._asked.add(name)
                requests.append(_declare_queue(name, here, self.federation.as_they_are))
        return requests


def _declare_queue(name: str, here: QueueState, as_they_are: set[str]) -> Request:
    what = f"declaring queue {name!r}"
    return what, queue.Declare(
        queue=name,
        passive=what in as_they_are,
        durable=here.durable,
        auto_delete=here.auto_delete,
        arguments=here.arguments,
    )
