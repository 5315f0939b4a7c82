"""Client: the application's half of its access to a broker in the same process.

No socket, no encoding: a call appends a command to a deque that the broker's thread reads, and bodies are
shared, not copied.  A client belongs to the thread that opened it.

There are two kinds of calls.  ``_tell`` appends a command and returns (publish, acknowledge).  ``_ask`` also
waits for the answer (declare, consume, get).  All commands of a client are in one deque, so the broker
carries them out in the order of the calls.  ``session.py`` has the other half, and says which thread writes
what.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from kernel.contracts.bodies import all_checked
from kernel.contracts.counts import counted
from kernel.contracts.envelopes import checked_envelope, checked_text
from kernel.contracts.errors import ConnectionLost, KernelClosed, KernelError, WrongThread
from kernel.contracts.message import Batch, Buffer, Envelope, batch_of
from kernel.hosting.forking import FORKED, OfThisProcess, call_in_children
from plugins.engines.broker.errors import BrokerError, NotFound, PreconditionFailed
from plugins.engines.broker.local.session import Answer, Command, LocalSession, Shared, counted_size

if TYPE_CHECKING:
    from plugins.engines.broker.host.engine import BrokerEngine
    from plugins.engines.broker.host.options import BrokerClientOptions
    from plugins.engines.broker.host.running_broker import RunningBroker

_DEFAULT_PREFETCH = 1000
# A mistake that only the broker's thread met would end the broker, for everybody.
_QUEUE, _EXCHANGE = "the name of a queue", "the name of an exchange"
_MOST_COMMANDS = 10_000
"""How many commands may wait for the broker's thread before ``publish`` waits, too."""


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


class BrokerClient(OfThisProcess):
    """Declares, publishes, consumes and acknowledges.  What the broker refuses raises a ``BrokerError``.

    ``publish``, ``ack``, ``reject`` and ``close`` do not wait for the broker.  All other methods wait until
    the broker has answered, up to ``timeout`` of the options.  ``publish`` does, too, if publishers have to
    wait.
    """

    def __init__(
        self,
        running: RunningBroker,
        name: str,
        options: BrokerClientOptions,
        waiting: Callable[[Callable[[], Any]], AbstractContextManager[None]],
    ) -> None:
        """Connect; ``KernelError`` if the broker, the user or the virtual host does not exist.

        ``waiting``: see ``ApiSetup``.
        """
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
        """Deliveries that were collected and that the application has not been given."""
        self._session: LocalSession
        with waiting(partial(self.kernel_closed, "the kernel was closed")):
            engine = running.wait(options.timeout, self._shared.bell, lambda: bool(self._reason))
            if engine is None:
                self._check_alive()
                raise KernelError(f"broker {options.broker!r} is not running, or is no broker")
            self._host = engine.host
            self._begin(engine, options)
        call_in_children(self, BrokerClient._forked)

    def _begin(self, engine: BrokerEngine, options: BrokerClientOptions) -> None:
        answer, shared = Answer(), self._shared

        def begin() -> None:
            # In the broker's thread: the session and everything that it uses belongs to it.
            try:
                # The engine may have stopped since ``RunningBroker.wait`` returned it.
                if not engine.running:
                    raise ConnectionLost(f"broker {options.broker!r} has stopped")
                session = LocalSession(engine, self.name, options.vhost, options.user, shared)
                engine.add(session, _nothing)
                answer.value = session
            except KernelError as error:
                answer.error = error
            answer.done = True
            shared.bell.set()

        def abandon() -> None:
            if answer.value is not None:
                answer.value.end("the application did not wait for it")

        self._host.post(begin)
        try:
            self._session = self._wait_answer(answer)
        except KernelError:
            # The broker's thread may still be busy with something else, and begin the session later.  What is
            # posted runs in order, so this comes after it.
            self._host.post(abandon)
            raise

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
        """Declare a queue; for an empty name the broker chooses one.  Returns when the store has it."""
        name, given = checked_text(name, _QUEUE), _table(arguments)

        def declare(session: LocalSession, now: float) -> QueueState:
            session.login.require_queue(name, given, session.vhost)
            queue = session.vhost.declare_queue(
                name,
                session,
                now,
                durable=durable,
                exclusive=exclusive,
                auto_delete=auto_delete,
                arguments=given,
            )
            # So that expired messages, and those that consumers take now, are not counted.
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
        name, kind = checked_text(name, _EXCHANGE), checked_text(kind, "the type of an exchange")
        given = _table(arguments)

        def declare(session: LocalSession, now: float) -> None:
            session.login.require("configure", "exchange", name, session.vhost.name)
            session.vhost.declare_exchange(
                name,
                kind,
                durable=durable,
                auto_delete=auto_delete,
                internal=internal,
                arguments=given,
            )

        self._ask(declare)

    def bind(
        self, queue: str, exchange: str, key: str = "", arguments: Mapping[str, Any] | None = None
    ) -> None:
        """Bind a queue to an exchange.  If the binding exists, nothing changes."""
        queue, exchange, key = _binding(queue, exchange, key)
        given = _table(arguments)

        def bind(session: LocalSession, now: float) -> None:
            session.login.require_binding(exchange, "queue", queue, key, session.vhost)
            found = session.vhost.find_queue(queue, session)
            session.vhost.bind(exchange, found, key, given)

        self._ask(bind)

    def unbind(
        self, queue: str, exchange: str, key: str = "", arguments: Mapping[str, Any] | None = None
    ) -> None:
        """Remove a binding.  It is no error if it does not exist."""
        queue, exchange, key = _binding(queue, exchange, key)
        given = _table(arguments)

        def unbind(session: LocalSession, now: float) -> None:
            session.login.require_binding(exchange, "queue", queue, key, session.vhost)
            found = session.vhost.find_queue(queue, session)
            session.vhost.unbind(exchange, found, key, given)

        self._ask(unbind)

    def purge(self, queue: str) -> int:
        """Remove the ready messages of a queue; return how many there were."""
        queue = checked_text(queue, _QUEUE)

        def purge(session: LocalSession, now: float) -> int:
            session.login.require("read", "queue", queue, session.vhost.name)
            return session.vhost.find_queue(queue, session).purge(now)

        return int(self._ask(purge))

    def delete_queue(self, queue: str) -> int:
        """Delete a queue; return how many messages were ready."""
        queue = checked_text(queue, _QUEUE)

        def delete(session: LocalSession, now: float) -> int:
            session.login.require("configure", "queue", queue, session.vhost.name)
            return session.vhost.delete_queue(queue, session, now)

        return int(self._ask(delete))

    def delete_exchange(self, exchange: str) -> None:
        """Delete an exchange."""
        exchange = checked_text(exchange, _EXCHANGE)

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
        messages that no queue and no route takes make ``wait_confirmed`` raise.
        """
        self._check()
        shared = self._shared
        # Both figures may be stale by what the broker's thread does just now.  Then a few messages more are
        # published, or the look inside ``_wait`` finds that there is no need to wait.
        if shared.waits or len(shared.commands) >= _MOST_COMMANDS:
            self._wait(self._may_publish, "publish")
        if not bodies:
            return
        # A copy, since a batch is shared and the application may go on to change its list.
        batch = batch_of(list(all_checked(bodies)), checked_envelope(envelope))
        self._published += len(bodies)
        self._tell(partial(_take, batch, mandatory))

    def wait_confirmed(self, timeout: float | None = None) -> None:
        """Wait until queues, disk and confirming routes have all messages that were published.

        Raises the first refusal since the last call; the messages that were not refused are confirmed all the
        same.
        """
        self._check()
        shared = self._shared
        self._wait(lambda: shared.told >= self._published, "confirm", timeout)
        # All messages are decided and none is on its way, so the broker's thread writes neither of these now.
        refused, self._refused = shared.refused - self._refused, shared.refused
        refusal, shared.refusal = shared.refusal, None
        if refusal is not None:
            raise refusal
        # Without an error: a queue with x-overflow = reject-publish took only a part.
        if refused:
            raise PreconditionFailed(
                f"{counted(refused, 'message was', 'messages were')} refused: a queue is full"
            )

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

        ``prefetch``: how many messages may be unacknowledged; 0: any number.  ``auto_ack``: a delivery counts
        as acknowledged when it is made.
        """
        queue, given = checked_text(queue, _QUEUE), _table(arguments)
        tag = checked_text(tag, "the tag of a consumer") or f"{self.name}.{queue}"
        if type(prefetch) is not int or prefetch < 0:
            raise TypeError(f"prefetch is a number of messages, or 0 for no limit, not {prefetch!r}")

        def consume(session: LocalSession, now: float) -> None:
            if tag in session.receiver.consumers:
                raise PreconditionFailed(f"there is a consumer {tag!r} already")
            session.start_consumer(tag, queue, given, prefetch, auto_ack, now)

        self._ask(consume)
        return tag

    def cancel(self, tag: str) -> None:
        """End a subscription.  Messages that it has unacknowledged stay unacknowledged."""
        tag = checked_text(tag, "the tag of a consumer")
        self._ask(lambda session, now: session.stop_consumer(tag, now))

    def receive(self, timeout: float | None = None) -> Delivery | None:
        """Return the next delivery; None if there is none within ``timeout`` seconds (None: wait for ever).

        Raises ``NotFound`` if the queue of a consumer was deleted; that consumer has ended.
        """
        if not self._ready:
            self._collect(timeout)
        return self._ready.popleft() if self._ready else None

    def receive_many(self, timeout: float | None = None) -> list[Delivery]:
        """Return all deliveries that have arrived; wait up to ``timeout`` seconds for the first.

        Raises ``NotFound`` as ``receive`` does.
        """
        self._collect(0.0 if self._ready else timeout)
        found = list(self._ready)
        self._ready.clear()
        return found

    def get(self, queue: str, *, auto_ack: bool = False) -> Delivery | None:
        """Take one message from a queue; None: it is empty."""
        queue = checked_text(queue, _QUEUE)

        def get(session: LocalSession, now: float) -> Delivery | None:
            session.login.require("read", "queue", queue, session.vhost.name)
            found = session.vhost.find_queue(queue, session)
            # Deliveries of ``get`` and of consumers have one sequence of tags, so that ``ack`` takes both.
            taken = session.receiver.take_one(found, now, auto_ack=auto_ack)
            if taken is None:
                return None
            session.messages_out += 1
            tag, span = taken
            return Delivery(tag, span.as_batch().bodies[0], span.envelope, span.redelivered, "")

        found: Delivery | None = self._ask(get)
        return found

    def ack(self, deliveries: Delivery | Iterable[Delivery]) -> None:
        """Acknowledge deliveries.  Returns at once.

        A delivery that is not unacknowledged ends the session, as AMQP closes a channel: a later call raises
        ``ConnectionLost``.
        """
        for first, last in _ranges(deliveries):
            self._tell(partial(_acknowledge, first, last))

    def reject(self, deliveries: Delivery | Iterable[Delivery], *, requeue: bool) -> None:
        """Reject deliveries: requeue them, or drop them (to the dead-letter exchange if there is one).

        Returns at once.  An unknown delivery has the same effect as with ``ack``.
        """
        for first, last in _ranges(deliveries):
            self._tell(partial(_reject, first, last, requeue))

    def close(self) -> None:
        """Disconnect: unacknowledged messages return to their queues, exclusive queues are deleted."""
        if not self.closed:
            self.closed = True
            # Without ``_check``, which would find the client closed.
            if not self._shared.lost and not self._reason:
                self._tell(lambda session, now: session.end("closed by the application"), check=False)

    # For the kernel

    def kernel_closed(self, reason: str) -> None:
        """Called by the kernel, from any thread: wake the application if it waits."""
        # In this order, so that a thread that is woken finds the reason.
        self._reason = reason
        self._shared.bell.set()

    def _forked(self) -> None:
        """This process is a child that was forked: refuse each call.  The parent is given what has come."""
        self._reason = FORKED
        self._ready.clear()

    def dispose(self) -> None:
        """Called by the kernel when it has ended."""
        self.closed = True

    # Between the threads

    def _tell(self, command: Command, *, check: bool = True) -> None:
        if check:
            self._check()
        shared = self._shared
        # First append, then look at the flag; the session clears the flag, then looks at the deque (decision
        # 17).  So either it sees this command, or this thread sees the flag cleared and posts.
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
        # A command that is not answered in time is not taken back: the broker may carry it out later.
        if not self._wait_until(done, self._timeout if timeout is None else timeout):
            raise KernelError(f"{self.name!r}: the broker did not {what} in time")

    def _wait_until(self, done: Callable[[], bool], timeout: float | None) -> bool:
        bell = self._shared.bell
        deadline = None if timeout is None else time.monotonic() + timeout
        while not done():
            # Cleared before the second look: a change after it sets the event again.  A change between the
            # first look and the clearing is found by the second.
            bell.clear()
            if done():
                return True
            # ``done`` came first: an answer counts although the broker has ended since.
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
        """Move what has arrived to ``_ready``; wait up to ``timeout`` seconds if nothing has."""
        self._check()
        arrived = self._shared.arrived
        if not arrived and not self._wait_until(lambda: bool(arrived), timeout):
            return
        size = 0
        while arrived:
            consumer, tag, redelivered, batch = arrived.popleft()
            if batch is None:
                # What arrived before the end of the queue is in ``_ready``, and the next call returns it.
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
        # One command for all that was collected.  It opens the window for as much.
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


def _binding(queue: Any, exchange: Any, key: Any) -> tuple[str, str, str]:
    return checked_text(queue, _QUEUE), checked_text(exchange, _EXCHANGE), checked_text(key, "a key")


def _table(arguments: Any) -> dict[str, Any]:
    """Return a copy of arguments, which the broker's thread reads when the application goes on."""
    if arguments is None:
        return {}
    if not isinstance(arguments, Mapping):
        raise TypeError(f"arguments are a mapping, not {type(arguments).__name__}")
    return {checked_text(name, "the name of an argument"): value for name, value in arguments.items()}


def _take(batch: Batch, mandatory: bool, session: LocalSession, now: float) -> None:
    session.take(batch, mandatory, now)


def _acknowledge(first: int, last: int, session: LocalSession, now: float) -> None:
    session.acknowledge(first, last, accepted=True, requeue=False, now=now)


def _reject(first: int, last: int, requeue: bool, session: LocalSession, now: float) -> None:
    session.acknowledge(first, last, accepted=False, requeue=requeue, now=now)


def _ranges(deliveries: Delivery | Iterable[Delivery]) -> list[tuple[int, int]]:
    """Return the tags as ranges of consecutive tags, for each of which one command is enough."""
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


def _nothing() -> None:
    """No front end counts this client, so none has to be told of its end."""


__all__ = ["BrokerClient", "BrokerError", "Delivery", "Envelope", "QueueState"]
