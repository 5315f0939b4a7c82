"""Client: the application's half of its access to a broker in the same process.

No socket, no encoding: a call appends to a deque that the broker's thread reads, and bodies are shared, not
copied.  A client belongs to the thread that opened it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from kernel.contracts.errors import ConnectionLost, KernelClosed, KernelError, WrongThread
from kernel.contracts.message import Batch, Buffer, Envelope, batch_of
from plugins.engines.broker.errors import BrokerError, NotFound, PreconditionFailed
from plugins.engines.broker.local.session import Answer, Command, LocalSession, Shared, counted_size

if TYPE_CHECKING:
    from plugins.engines.broker.host.engine import BrokerEngine
    from plugins.engines.broker.host.options import BrokerClientOptions
    from plugins.engines.broker.host.running_broker import RunningBroker

_DEFAULT_PREFETCH = 1000
_MOST_COMMANDS = 10_000
"""Commands that may wait for the broker's thread before a publish does."""


class QueueState(NamedTuple):
    """A queue as it was when it was declared."""

    name: str
    messages: int
    consumers: int


class Delivery(NamedTuple):
    """A message that was delivered."""

    tag: int
    """What it is acknowledged by; counts up."""
    body: Any
    envelope: Envelope
    redelivered: bool
    """Whether it may have been delivered before."""
    consumer: str
    """The tag of the consumer; empty for what ``get`` returned."""


class BrokerClient:
    """Declares, publishes, consumes and acknowledges.  What the broker refuses raises a ``BrokerError``.

    ``publish`` does not wait for the broker; ``wait_confirmed`` does.  All others wait until the broker has
    done it.
    """

    def __init__(self, running: RunningBroker, name: str, options: BrokerClientOptions) -> None:
        """Connect; ``KernelError`` if there is no such broker, or the user or virtual host is not there."""
        self.name = name
        self.closed = False
        self._timeout = options.timeout
        self._thread = get_ident()
        self._shared = Shared()
        self._published = 0
        self._refused = 0
        self._reason = ""
        """Why the kernel has closed; empty: it has not."""
        self._ready: deque[Delivery] = deque()
        self._taken = 0
        engine = running.wait(options.timeout)
        if engine is None:
            raise KernelError(f"broker {options.broker!r} is not running, or is no broker")
        self._host = engine.host
        self._session: LocalSession
        self._begin(engine, options)

    def _begin(self, engine: BrokerEngine, options: BrokerClientOptions) -> None:
        answer, shared = Answer(), self._shared

        def begin() -> None:
            try:
                if not engine.running:
                    raise ConnectionLost(f"broker {options.broker!r} has stopped")
                session = LocalSession(engine, self.name, options.vhost, options.user, shared)
                engine.add(session, _nothing)
                answer.value = session
            except KernelError as error:
                answer.error = error
            answer.done = True
            shared.bell.set()

        self._host.post(begin)
        self._session = self._wait_answer(answer)

    def __repr__(self) -> str:
        return f"<BrokerClient {self.name}{', closed' if self.closed else ''}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Declaring

    def declare_queue(
        self,
        name: str = "",
        *,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> QueueState:
        """Declare a queue; an empty name has the broker invent one.  Returns when the store has it."""

        def declare(session: LocalSession, now: float) -> QueueState:
            session.login.require("configure", "queue", name, session.vhost.name)
            queue = session.vhost.declare_queue(
                name,
                session,
                now,
                durable=durable,
                exclusive=exclusive,
                auto_delete=auto_delete,
                arguments=arguments or {},
            )
            queue.process(now)
            return QueueState(queue.name, queue.backlog.count, queue.consumer_count)

        state: QueueState = self._ask(declare)
        return state

    def declare_exchange(
        self,
        name: str,
        kind: str = "direct",
        *,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """Declare an exchange.  Returns when the store has it."""

        def declare(session: LocalSession, now: float) -> None:
            session.login.require("configure", "exchange", name, session.vhost.name)
            session.vhost.declare_exchange(
                name,
                kind,
                durable=durable,
                auto_delete=auto_delete,
                internal=internal,
                arguments=arguments or {},
            )

        self._ask(declare)

    def bind(
        self, queue: str, exchange: str, key: str = "", arguments: Mapping[str, Any] | None = None
    ) -> None:
        """Have an exchange lead to a queue."""

        def bind(session: LocalSession, now: float) -> None:
            _require_both(session, queue, exchange)
            found = session.vhost.find_queue(queue, session)
            session.vhost.bind(exchange, found, key, arguments or {})

        self._ask(bind)

    def unbind(
        self, queue: str, exchange: str, key: str = "", arguments: Mapping[str, Any] | None = None
    ) -> None:
        """Take a binding away; one that is not there is no fault."""

        def unbind(session: LocalSession, now: float) -> None:
            _require_both(session, queue, exchange)
            found = session.vhost.find_queue(queue, session)
            session.vhost.unbind(exchange, found, key, arguments or {})

        self._ask(unbind)

    def purge(self, queue: str) -> int:
        """Remove what waits in a queue; return how many messages that were."""

        def purge(session: LocalSession, now: float) -> int:
            session.login.require("read", "queue", queue, session.vhost.name)
            return session.vhost.find_queue(queue, session).purge(now)

        return int(self._ask(purge))

    def delete_queue(self, queue: str) -> int:
        """Delete a queue; return how many messages were in it."""

        def delete(session: LocalSession, now: float) -> int:
            session.login.require("configure", "queue", queue, session.vhost.name)
            return session.vhost.delete_queue(queue, session, now)

        return int(self._ask(delete))

    def delete_exchange(self, exchange: str) -> None:
        """Delete an exchange."""

        def delete(session: LocalSession, now: float) -> None:
            session.login.require("configure", "exchange", exchange, session.vhost.name)
            session.vhost.delete_exchange(exchange)

        self._ask(delete)

    # Publishing

    def publish(self, body: Buffer, envelope: Envelope, *, mandatory: bool = False) -> None:
        """Publish one message; see ``publish_many``."""
        self.publish_many((body,), envelope, mandatory=mandatory)

    def publish_many(self, bodies: Sequence[Buffer], envelope: Envelope, *, mandatory: bool = False) -> None:
        """Publish messages under one envelope: its ``exchange``, ``key``, ``persistent`` ...

        Returns at once, unless publishers have to wait (an alarm, a full route, a slow disk).  ``mandatory``:
        messages that no queue and no route wants make ``wait_confirmed`` raise.
        """
        self._check()
        shared = self._shared
        if shared.waits or len(shared.commands) >= _MOST_COMMANDS:
            self._wait(self._may_publish, "publish")
        if not bodies:
            return
        batch = batch_of(list(bodies), envelope)
        self._published += len(bodies)
        self._tell(partial(_take, batch, mandatory))

    def wait_confirmed(self, timeout: float | None = None) -> None:
        """Wait until the broker has taken the responsibility for all that was published: queues, disk and routes have it.

        Raises the first refusal since the last call; the messages that were not refused are confirmed all the same.
        """
        self._check()
        shared = self._shared
        self._wait(lambda: shared.told >= self._published, "confirm", timeout)
        refused, self._refused = shared.refused - self._refused, shared.refused
        refusal, shared.refusal = shared.refusal, None
        if refusal is not None:
            raise refusal
        if refused:
            raise PreconditionFailed(f"{refused} messages were refused: a queue is full")

    # Consuming

    def consume(
        self,
        queue: str,
        *,
        tag: str = "",
        prefetch: int = _DEFAULT_PREFETCH,
        auto_ack: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> str:
        """Subscribe to a queue; return the consumer's tag.

        ``prefetch``: how many messages may be unacknowledged; 0: any number.  ``auto_ack``: a delivery is an
        acknowledgement.
        """
        tag = tag or f"{self.name}.{queue}"

        def consume(session: LocalSession, now: float) -> None:
            if tag in session.receiver.consumers:
                raise PreconditionFailed(f"there is a consumer {tag!r} already")
            session.start_consumer(tag, queue, dict(arguments or {}), prefetch, auto_ack, now)

        self._ask(consume)
        return tag

    def cancel(self, tag: str) -> None:
        """End a subscription.  What was delivered and is not acknowledged stays so."""
        self._ask(lambda session, now: session.stop_consumer(tag, now))

    def receive(self, timeout: float | None = None) -> Delivery | None:
        """Return the next delivery; None if there is none within so many seconds."""
        if not self._ready:
            self._collect(timeout)
        return self._ready.popleft() if self._ready else None

    def receive_many(self, timeout: float | None = None) -> list[Delivery]:
        """Return all deliveries that there are, waiting for the first; empty if there is none in time."""
        self._collect(0.0 if self._ready else timeout)
        found = list(self._ready)
        self._ready.clear()
        return found

    def get(self, queue: str, *, auto_ack: bool = False) -> Delivery | None:
        """Take one message from a queue; None: it is empty."""

        def get(session: LocalSession, now: float) -> Delivery | None:
            session.login.require("read", "queue", queue, session.vhost.name)
            found = session.vhost.find_queue(queue, session)
            taken = session.receiver.take_one(found, now, auto_ack=auto_ack)
            if taken is None:
                return None
            tag, span = taken
            return Delivery(tag, span.as_batch().bodies[0], span.envelope, span.redelivered, "")

        found: Delivery | None = self._ask(get)
        return found

    def ack(self, deliveries: Delivery | Iterable[Delivery]) -> None:
        """Acknowledge.  Returns at once."""
        for first, last in _ranges(deliveries):
            self._tell(partial(_acknowledge, first, last))

    def reject(self, deliveries: Delivery | Iterable[Delivery], *, requeue: bool) -> None:
        """Give messages back to their queue, or away: dropped, or to its dead-letter exchange.

        Returns at once.
        """
        for first, last in _ranges(deliveries):
            self._tell(partial(_reject, first, last, requeue))

    def close(self) -> None:
        """Leave: what is not acknowledged goes back to its queues, exclusive queues are deleted."""
        if not self.closed:
            self.closed = True
            if not self._shared.lost and not self._reason:
                self._tell(lambda session, now: session.end("closed by the application"), check=False)

    # For the kernel

    def kernel_closed(self, reason: str) -> None:
        """Called by the kernel, from any thread: wake whoever waits."""
        self._reason = reason
        self._shared.bell.set()

    def dispose(self) -> None:
        """Called by the kernel at its very end."""
        self.closed = True

    # Between the threads

    def _tell(self, command: Command, *, check: bool = True) -> None:
        if check:
            self._check()
        shared = self._shared
        shared.commands.append(command)
        if not shared.signalled:
            shared.signalled = True
            self._host.post(self._session.work)

    def _ask(self, operation: Command) -> Any:
        answer = Answer()
        self._tell(lambda session, now: session.answer(answer, operation, now))
        return self._wait_answer(answer)

    def _wait_answer(self, answer: Answer) -> Any:
        self._wait(lambda: answer.done, "answer")
        if answer.error is not None:
            raise answer.error
        return answer.value

    def _wait(self, done: Callable[[], bool], what: str, timeout: float | None = None) -> None:
        if not self._wait_until(done, self._timeout if timeout is None else timeout):
            raise KernelError(f"{self.name!r}: the broker did not {what} in time")

    def _wait_until(self, done: Callable[[], bool], timeout: float | None) -> bool:
        bell = self._shared.bell
        deadline = None if timeout is None else time.monotonic() + timeout
        while not done():
            # Cleared before the look: whatever changes after it sets the event again.
            bell.clear()
            if done():
                return True
            self._check_alive()
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            bell.wait(left)
        return True

    def _may_publish(self) -> bool:
        shared = self._shared
        return not shared.waits and len(shared.commands) < _MOST_COMMANDS

    def _collect(self, timeout: float | None) -> None:
        """Take what has arrived, and wait for it if nothing has."""
        self._check()
        arrived = self._shared.arrived
        if not arrived and not self._wait_until(lambda: bool(arrived), timeout):
            return
        size = 0
        while arrived:
            consumer, tag, redelivered, batch = arrived.popleft()
            if batch is None:
                self._has_taken(size)
                raise NotFound(f"the queue of consumer {consumer!r} was deleted")
            size += counted_size(batch)
            envelope = batch.envelope
            self._ready += [
                Delivery(tag + offset, body, envelope, redelivered, consumer)
                for offset, body in enumerate(batch.bodies)
            ]
        self._has_taken(size)

    def _has_taken(self, size: int) -> None:
        if size:
            self._tell(lambda session, now: session.has_taken(size, now))

    def _check(self) -> None:
        if get_ident() != self._thread:
            raise WrongThread(f"{self.name!r} belongs to the thread that opened it")
        self._check_alive()

    def _check_alive(self) -> None:
        if self._reason or self.closed:
            raise KernelClosed(f"{self.name!r}: {self._reason or 'it is closed'}")
        if self._shared.lost:
            raise ConnectionLost(f"{self.name!r}: {self._shared.lost}")


def _take(batch: Batch, mandatory: bool, session: LocalSession, now: float) -> None:
    session.take(batch, mandatory, now)


def _acknowledge(first: int, last: int, session: LocalSession, now: float) -> None:
    session.acknowledge(first, last, accepted=True, requeue=False, now=now)


def _reject(first: int, last: int, requeue: bool, session: LocalSession, now: float) -> None:
    session.acknowledge(first, last, accepted=False, requeue=requeue, now=now)


def _ranges(deliveries: Delivery | Iterable[Delivery]) -> list[tuple[int, int]]:
    """Return the tags as ranges: a thousand that follow each other are one."""
    if isinstance(deliveries, Delivery):
        return [(deliveries.tag, deliveries.tag)]
    ranges: list[tuple[int, int]] = []
    for delivery in deliveries:
        tag = delivery.tag
        if ranges and ranges[-1][1] + 1 == tag:
            ranges[-1] = ranges[-1][0], tag
        else:
            ranges.append((tag, tag))
    return ranges


def _require_both(session: LocalSession, queue: str, exchange: str) -> None:
    session.login.require("write", "queue", queue, session.vhost.name)
    session.login.require("read", "exchange", exchange, session.vhost.name)


def _nothing() -> None:
    """A client that ends leaves nothing else behind."""


__all__ = ["BrokerClient", "BrokerError", "Delivery", "Envelope", "QueueState"]
