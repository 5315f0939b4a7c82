"""Session: the broker's half of an application's access to it.  Everything here is in the broker's thread.

The application's half (``client.py``) appends commands to a deque and posts ``work`` once; this half appends
deliveries to another deque and sets an event.  A command is a callable with this session and the time, so
that publishes, acknowledgements and declarations are done in the order in which the application called.

The session is a client of the broker like one over a socket.  Instead of encoding it appends to
``Shared.arrived``.  The window counts the bytes that the application has not collected, as it counts the
bytes that a socket has not taken.

Between the threads (``Shared``): nothing is locked.  A deque's ``append`` and ``popleft`` are atomic, each
plain field has one writer, and the broker's thread sets the event after every change.  The application
clears the event before it looks, so it cannot miss a change (decision 17 has the proof for such orders).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Event
from typing import TYPE_CHECKING, Any, TypeAlias

from kernel.contracts.errors import KernelError
from kernel.contracts.message import Batch
from plugins.engines.broker.consumer import Consumer
from plugins.engines.broker.errors import BrokerError, NotFound
from plugins.engines.broker.host.confirms import Confirms
from plugins.engines.broker.host.publisher import Publisher
from plugins.engines.broker.host.users import Account, Login, Permissions
from plugins.engines.broker.receiver import LEAST_PER_MESSAGE, Receiver, Window

if TYPE_CHECKING:
    from plugins.engines.broker.host.engine import BrokerEngine

WINDOW_BYTES = 1024 * 1024
"""How many bytes of bodies may wait for the application before the queues deliver no more."""

_MOST_A_TURN = 1000
"""How many commands are carried out before other clients have their turn."""

Command: TypeAlias = "Callable[[LocalSession, float], Any]"
Arrived: TypeAlias = "tuple[str, int, bool, Batch | None]"
"""Tag of the consumer, first delivery tag, whether redelivered, the messages.  None: its queue was
deleted."""


def counted_size(batch: Batch) -> int:
    """Return how many bytes of the window messages take, as ``Receiver.deliver`` counts them."""
    return max(batch.size, LEAST_PER_MESSAGE * len(batch.bodies))


class Answer:
    """The result of a command that the application waits for.

    The broker's thread sets ``value`` or ``error`` first, and ``done`` last.
    """

    __slots__ = ("done", "error", "value")

    def __init__(self) -> None:
        self.done = False
        self.value: Any = None
        self.error: KernelError | None = None


class Shared:
    """What both halves use.  Each field has one writer, with two exceptions.

    The application sets ``signalled`` and the session clears it, as in a pipe (decision 17).  The session
    sets ``refusal``; the application clears it while none of its messages is on its way.
    """

    __slots__ = ("arrived", "bell", "commands", "lost", "refusal", "refused", "signalled", "told", "waits")

    def __init__(self) -> None:
        self.commands: deque[Command] = deque()
        """What the application asks for, in order."""
        self.signalled = False
        """Whether ``work`` was posted and has not begun yet."""
        self.arrived: deque[Arrived] = deque()
        """Deliveries that the application has not collected."""
        self.bell = Event()
        """Set by the broker's thread after each of the following has changed."""
        self.told = 0
        """How many of the published messages are confirmed or refused."""
        self.refused = 0
        """How many of those were refused."""
        self.refusal: BrokerError | None = None
        """The first error since the application was told last.  None: no error, but queues may be full."""
        self.waits = False
        """Whether publishers have to wait."""
        self.lost = ""
        """Why the session has ended; empty: it has not."""


class LocalSession(Publisher):
    """An application as a client of the broker."""

    bytes_in = 0
    bytes_out = 0
    # There is no socket that could be behind.  What the application has not collected is in the window.
    unwritten = 0

    def __init__(self, engine: BrokerEngine, name: str, vhost: str, user: str, shared: Shared) -> None:
        """Log in; ``BrokerError`` if the user or the virtual host does not exist."""
        found = engine.broker.vhost(vhost)
        login = engine.users.log_in(user, loopback=True) if user else _anybody(name)
        if login is None:
            raise NotFound(f"no user '{user}'")
        login.enter(found.name)
        super().__init__(found, login, engine.feed)
        self.peer = f"in-process {name}"
        self.published = False
        self.messages_in = self.messages_out = 0
        self._engine = engine
        self._shared = shared
        self._counted: Confirms = Confirms()
        self.confirms = self._counted
        self._window = Window(WINDOW_BYTES)
        self.receiver = Receiver(self._window, self._on_deliveries, self._on_cancelled)
        self._untaken = 0
        """Bytes of deliveries that the application has not collected."""
        self._unsafe: deque[tuple[int, Answer]] = deque()
        """Answers that wait for the store, each behind the group that has to be safe."""
        self._ended = False

    def __repr__(self) -> str:
        return f"<LocalSession {self.peer}, {len(self.receiver.unacked)} unacked>"

    @property
    def unpublished_bytes(self) -> int:
        """An application hands over whole messages."""
        return 0

    @property
    def unacked_bytes(self) -> int:
        """An estimate of the octets of the bodies that the application has not acknowledged."""
        return self.receiver.unacked.estimated_size()

    @property
    def confirming(self) -> bool:
        """Whether messages that the application has published are not decided yet."""
        return self._counted.told < self._counted.published

    # Commands

    def work(self) -> None:
        """Carry out the commands of the application, which posts this."""
        shared, now = self._shared, self._engine.host.now()
        # Cleared before the deque is looked at; ``BrokerClient._tell`` appends before it looks at the flag.
        shared.signalled = False
        if self._ended:
            return
        self._engine.is_busy(self)
        commands = shared.commands
        for _ in range(_MOST_A_TURN):
            # Not ``while commands``: a pop takes the deque's lock, which the order above needs without the
            # interpreter's lock (decision 17), and its length does not.
            try:
                command = commands.popleft()
            except IndexError:
                break
            command(self, now)
            if self._ended:
                break
        else:
            # There may be more.  With the flag set, the application need not post.
            shared.signalled = True
            self._engine.host.soon(self.work)
        self._engine.finish_turn(now)

    def answer(self, answer: Answer, operation: Command, now: float) -> None:
        """Carry out an operation that the application waits for.

        The answer is given at once, or when the store has the definitions that the operation has changed.
        """
        store = self.vhost.store
        version = store.definition_version
        # Errors of the kernel and the broker are answers.  Any other exception is a fault in the broker, and
        # ends its engine.
        try:
            answer.value = operation(self, now)
        except KernelError as error:
            answer.error = error
        if store.definition_version != version:
            self._unsafe.append((store.demand(), answer))
        else:
            answer.done = True
            self._shared.bell.set()

    def take(self, batch: Batch, mandatory: bool, now: float) -> None:
        """Publish a batch."""
        self.published = True
        count = len(batch.bodies)
        self.messages_in += count
        self.bytes_in += batch.size
        try:
            admitted = self.admit(batch.envelope)
            # ``check`` may return another envelope than it was given.
            if admitted is not batch.envelope:
                batch = batch.under(admitted)
            self.publish(batch, now, mandatory=mandatory)
        except BrokerError as error:
            self._refuse(error)
            # Refused messages are counted, too: ``wait_confirmed`` waits until all are decided.
            self._counted.add(count, 0, 0)

    def on_unroutable(self, batch: Batch) -> None:
        """Note for ``wait_confirmed`` that mandatory messages went nowhere.  They count as confirmed."""
        envelope = batch.envelope
        text = f"no queue for messages to exchange '{envelope.exchange}' with key '{envelope.key}'"
        self._refuse(NotFound(text))

    def _refuse(self, error: BrokerError) -> None:
        shared = self._shared
        shared.refusal = shared.refusal or error

    def start_consumer(
        self, tag: str, queue: str, arguments: dict[str, Any], prefetch: int, auto_ack: bool, now: float
    ) -> None:
        """Subscribe to a queue."""
        self.login.require("read", "queue", queue, self.vhost.name)
        found = self.vhost.find_queue(queue, self)
        consumer = Consumer(
            tag,
            found,
            self.receiver,
            auto_ack=auto_ack,
            exclusive=False,
            prefetch=prefetch,
            arguments=arguments,
        )
        self.vhost.subscribe(consumer, now)

    def stop_consumer(self, tag: str, now: float) -> None:
        """End a subscription; what its queue has delivered reaches the application first."""
        consumer = self.receiver.consumers.get(tag)
        if consumer is not None:
            self._deliver()
            self.vhost.unsubscribe(consumer, now)

    def acknowledge(self, first: int, last: int, *, accepted: bool, requeue: bool, now: float) -> None:
        """Acknowledge or reject deliveries.  A tag that is not outstanding ends the session, as in AMQP."""
        try:
            if accepted:
                self.receiver.acknowledge(first, last, multiple=False)
            else:
                self.receiver.reject(first, last, multiple=False, requeue=requeue, now=now)
        except BrokerError as refusal:
            self.end(refusal.text)

    def has_taken(self, size: int, now: float) -> None:
        """The application has collected deliveries: the queues may deliver as much again."""
        self._untaken -= size
        self._window.refill(WINDOW_BYTES - self._untaken, now)

    # The broker's end of a turn

    def finish(self, now: float) -> None:
        """Pass on to the application what this turn brought."""
        self.published = False
        if self._ended:
            return
        self._deliver()
        shared, store, counted = self._shared, self.vhost.store, self._counted
        unsafe = self._unsafe
        # ``demand`` never returns less than before, so the answers are in the order of their groups.
        while unsafe and unsafe[0][0] <= store.safe:
            unsafe.popleft()[1].done = True
            shared.bell.set()
        if counted.told < counted.published:
            self._confirm()
        # Routes make a client busy that waits for them (``confirming``).  The store has to be asked.
        if unsafe or (counted.told < counted.published and counted.waits_for(self.feed.confirmed)[1]):
            store.when_safe(self._on_safe)

    def _deliver(self) -> None:
        deliveries = self.receiver.take_deliveries()
        if not deliveries:
            return
        arrived = self._shared.arrived
        for consumer, first_tag, span in deliveries:
            # The batch of the publisher itself, or a slice: no body is copied.
            batch = span.as_batch()
            self._untaken += counted_size(batch)
            self.bytes_out += batch.size
            self.messages_out += len(batch.bodies)
            arrived.append((consumer.tag, first_tag, span.redelivered, batch))
        self._shared.bell.set()

    def _confirm(self) -> None:
        counted, shared = self._counted, self._shared
        before = counted.told
        for last, accepted, _ in counted.outcomes(self.feed.confirmed, self.vhost.store.safe):
            if not accepted:
                shared.refused += last - before
            before = last
        # Last: the application looks at the refusals when it sees that all messages are decided.
        if counted.told != shared.told:
            shared.told = counted.told
            shared.bell.set()

    def _on_deliveries(self) -> None:
        self._engine.is_busy(self)

    def _on_safe(self) -> None:
        # The engine makes a turn after all callbacks of the store.
        self._engine.is_busy(self)

    def _on_cancelled(self, consumer: Consumer) -> None:
        # What the queue delivered before it was deleted comes before the news of its end.
        self._deliver()
        self._shared.arrived.append((consumer.tag, 0, False, None))
        self._shared.bell.set()

    # From the broker

    def hold_back(self) -> None:
        """The routes are full, or the disk is behind: the next ``publish`` waits."""
        self._shared.waits = True

    def go_on(self) -> None:
        """There is room again, unless an alarm is raised."""
        if self._shared.waits and not self._engine.alarm_watch.alarms.raised:
            self._shared.waits = False
            self._shared.bell.set()

    def block(self, reason: str) -> None:
        """An alarm is raised: the next ``publish`` waits."""
        # One flag for both reasons.  ``go_on`` looks at the alarms; ``unblock`` need not look at the routes.
        self._shared.waits = True

    def unblock(self) -> None:
        """The last alarm was lifted.  If the routes are still full, the next publish is held back again."""
        self.go_on()

    def hang_up(self, reason: str) -> None:
        """End the session: the broker stops, or an operator wants it."""
        self.end(reason)

    def end(self, reason: str) -> None:
        """End the session: by the application, by an error, or by ``hang_up``."""
        if self._ended:
            return
        self._ended = True
        # In this order: without its consumers, nothing that is requeued is delivered to this session again.
        now = self._engine.host.now()
        for consumer in list(self.receiver.consumers.values()):
            self.vhost.unsubscribe(consumer, now)
        # What the application has not been given is unacknowledged, too, unless it needs no acknowledgement.
        self.receiver.take_deliveries()
        self.receiver.recover()
        self.login.leave()
        self.vhost.release(self, now)
        self._shared.lost = reason
        self._shared.bell.set()
        self._engine.has_ended(self, reason)
        # What was requeued may be for other clients.  This may be the middle of a turn, so they get another.
        self._engine.finish_soon()

    def inspect(self, what: str) -> list[dict[str, Any]]:
        """Return rows for an operator."""
        if what == "connections":
            return [self._row()]
        if what == "consumers":
            return [consumer.row(self.peer) for consumer in self.receiver.consumers.values()]
        return []

    def _row(self) -> dict[str, Any]:
        return {
            "name": self.peer,
            "user": self.login.name,
            "vhost": self.vhost.name,
            "state": "flow" if self._shared.waits else "running",
            "client": "in-process",
            "ssl": False,
            "channels": 1,
            "recv_oct": self.bytes_in,
            "send_oct": self.bytes_out,
            "send_pend": 0,
            "messages_in": self.messages_in,
            "messages_out": self.messages_out,
        }


def _anybody(name: str) -> Login:
    """Return a login that may do everything: code in this process needs no permission."""
    from plugins.engines.broker.host.passwords import Password

    return Login(name, Account(Password(), from_anywhere=False, everywhere=Permissions()))
