"""Sending: SEND frames, transactions, and the receipts that wait until a message is safe.

Every message is numbered (``Confirms``), so that the receipt of a later frame can wait for all before it:
that of DISCONNECT says that nothing is lost.  A message that a full queue refuses is an error of its SEND
frame, also if nobody has asked for a receipt (STOMP 1.2, SEND).
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import msgspec

from kernel.contracts.message import Batch, Envelope
from plugins.engines.broker.public import Transaction
from plugins.engines.stomp.session import Session
from plugins.engines.stomp.subscriptions import Subscriptions
from plugins.protocols.stomp.destinations import TEMP_QUEUE, Destination, parse_destination
from plugins.protocols.stomp.errors import Fault
from plugins.protocols.stomp.frames import Flow, Frames, encode_receipts
from plugins.protocols.stomp.properties import envelope_of

_MOST_TARGETS = 256
"""Flows of which it is remembered where their messages go."""


class Target(NamedTuple):
    """Where the messages of a flow go."""

    envelope: Envelope
    queue: str
    """The queue to declare; empty: none."""


class OpenTransaction:
    """A transaction that has begun."""

    def __init__(self) -> None:
        self.work = Transaction(routes_at_once=False)
        self.messages = 0
        self.receipts: list[tuple[int, str]] = []
        """The number of a message in the transaction, from 1 on, and the receipt of its frame."""


class Sending:
    """What one client publishes."""

    def __init__(self, session: Session, subscriptions: Subscriptions) -> None:
        self.transactions: dict[str, OpenTransaction] = {}
        self._session = session
        self._subscriptions = subscriptions
        self._targets: dict[Flow, Target] = {}
        self._receipts: deque[tuple[int, str]] = deque()
        """Receipts to send, and the number of the message that has to be confirmed before."""

    @property
    def waits(self) -> bool:
        """Whether a receipt waits for a confirmation."""
        return bool(self._receipts)

    def uncommitted_bytes(self) -> int:
        """Return how many octets of bodies wait for a commit."""
        return sum([transaction.work.size for transaction in self.transactions.values()])

    def send(self, frames: Frames, now: float) -> None:
        """Publish the messages of SEND frames, or add them to their transaction."""
        session = self._session
        # By the flow itself: equal headers are one object while the reader remembers it, so no header has to
        # be compared.
        target = self._targets.get(frames.flow)
        # A queue that somebody has deleted is declared again: the message would be lost.
        if target is None or (target.queue and target.queue not in session.vhost.queues):
            target = self._find_target(frames, now)
        count = len(frames.bodies)
        client, publisher = session.client, session.publisher
        client.published = True
        client.messages_in += count
        envelope = publisher.admit(target.envelope)
        batch = Batch(frames.bodies, frames.size, envelope, False, frames.width)
        if frames.transaction is not None:
            transaction = self.find_transaction(frames.transaction)
            transaction.work.publish(publisher, batch, mandatory=False)
            # Their numbers in the transaction. What numbers the messages get among all that is published is
            # known at the COMMIT only.
            transaction.receipts += [(transaction.messages + at, receipt) for at, receipt in frames.receipts]
            transaction.messages += count
            return
        before = session.confirms.published
        publisher.publish(batch, now)
        if frames.receipts:
            self._receipts += [(before + at, receipt) for at, receipt in frames.receipts]

    def _find_target(self, frames: Frames, now: float) -> Target:
        headers = frames.headers
        if "destination" not in headers:
            raise Fault("Missing destination", "'SEND' must include a 'destination' header\n")
        # It is the broker's, in MESSAGE. A client that sets it means ``amqp-message-id``.
        if "message-id" in headers:
            raise Fault("Invalid header", "'message-id' is not allowed on 'SEND'.\n")
        destination = parse_destination(headers["destination"])
        if destination.kind == "temp-queue":
            raise Fault(
                "Invalid destination",
                f"'{headers['destination']}' is not a valid destination for 'SEND'\n",
            )
        queue = self._declare(destination, frames, now)
        envelope = envelope_of(destination.exchange, destination.routing_key, headers)
        if envelope.reply_to.startswith(TEMP_QUEUE):
            reply_to = self._subscriptions.reply_queue(parse_destination(envelope.reply_to), now)
            envelope = msgspec.structs.replace(envelope, reply_to=reply_to)
        target = Target(envelope, queue)
        if len(self._targets) >= _MOST_TARGETS:
            self._targets.clear()
        self._targets[frames.flow] = target
        return target

    def _declare(self, destination: Destination, frames: Frames, now: float) -> str:
        if destination.kind != "queue":
            return ""
        self._session.declare_queue(destination.name, frames.headers, now)
        return destination.name

    # Transactions

    def find_transaction(self, name: str) -> OpenTransaction:
        """Return a transaction that has begun."""
        transaction = self.transactions.get(name)
        if transaction is None:
            raise Fault("Bad transaction", f"Invalid transaction identifier: {name}\n")
        return transaction

    def begin(self, frames: Frames) -> None:
        """Begin a transaction."""
        name = _transaction_of(frames)
        if name in self.transactions:
            raise Fault("Bad transaction", f"The transaction {name} has begun already\n")
        most = self._session.options.max_transactions
        if len(self.transactions) >= most:
            raise Fault("Too many transactions", f"At most {most} may be open\n")
        self.transactions[name] = OpenTransaction()

    def commit(self, frames: Frames, now: float) -> None:
        """Publish and acknowledge what is in a transaction."""
        name = _transaction_of(frames)
        transaction = self.find_transaction(name)
        before = self._session.confirms.published
        transaction.work.commit(self._session.publisher, now)
        # Not before: one that cannot be committed is rolled back with its connection.
        del self.transactions[name]
        self._receipts += [(before + at, receipt) for at, receipt in transaction.receipts]

    def abort(self, frames: Frames) -> None:
        """Drop the messages of a transaction; what it acknowledged is unacknowledged again."""
        name = _transaction_of(frames)
        self.find_transaction(name).work.roll_back()
        del self.transactions[name]

    def abort_all(self) -> None:
        """Abort every transaction."""
        for transaction in self.transactions.values():
            transaction.work.roll_back()
        self.transactions.clear()

    # Receipts

    def add_receipt(self, receipt: str) -> None:
        """Send a receipt when all that was published so far is confirmed."""
        self._receipts.append((self._session.confirms.published, receipt))

    def send_receipts(self) -> None:
        """Send the receipts that are due.  A message that was refused ends the connection."""
        session = self._session
        confirms, receipts = session.confirms, self._receipts
        if confirms.told < confirms.published:
            store = session.vhost.store
            for outcome in confirms.outcomes(session.publisher.feed.confirmed, store.safe):
                if not outcome.accepted:
                    receipt = receipts[0][1] if receipts and receipts[0][0] <= outcome.last else None
                    session.client.fail(
                        Fault("Message refused", "A queue is full and refuses the message\n", receipt)
                    )
                    return
                self._send_up_to(outcome.last)
            if receipts and confirms.told < confirms.published:
                store.when_safe(session.client.is_busy)
        self._send_up_to(confirms.told)

    def _send_up_to(self, number: int) -> None:
        receipts = self._receipts
        due: list[str] = []
        while receipts and receipts[0][0] <= number:
            due.append(receipts.popleft()[1])
        if due:
            self._session.client.send(encode_receipts(due, self._session.version))


def _transaction_of(frames: Frames) -> str:
    if frames.transaction is None:
        raise Fault("Missing transaction", f"'{frames.command}' must include a 'transaction' header\n")
    return frames.transaction
