"""Addresses of questions.

Which parts stand before a message on the wire, and which envelope says the same here.

A question that goes through ROUTERs gathers one part for each of them: the identity of the peer that it came
from.  An empty part ends the addresses (28/REQREP).  Here a question has ``envelope.reply_to``, the name of
the port of the peer, by which ``router = "reply"`` finds the way back; further addresses of REP are in the
property ``correlation_id``.  An answer is sent under the envelope of its question, or as AMQP workers answer:
the address is its key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import msgspec

from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import PLAIN, Batch, Envelope, batch_of, batch_of_one
from plugins.protocols.zmtp.frames import MORE
from plugins.protocols.zmtp.options import ZmtpOptions

Head: TypeAlias = tuple[bytes, ...]
"""Parts that stand before those of a message."""

EMPTY_PART = bytes((MORE, 0))
"""An empty part that others follow, from version 2.0 on."""
_HOPS = "zmq:"
"""The beginning of a ``correlation_id`` with addresses.  Others are of somebody else."""

_NUMBERS = 1 << 32


class Addressing:
    """What becomes of addresses.  This class leaves all parts as they are."""

    reply_to = ""
    """The name of the port of the peer."""
    before_one: bytes | None = None
    """The frames before a message that has no addresses; None: its short way is not possible
    (``encode_one``)."""
    asks = False
    """Whether what is sent are questions."""
    asked: Envelope | None = None
    """The envelope of the question that has no answer yet."""

    @property
    def envelope(self) -> Envelope | None:
        """That of questions without addresses, from this peer."""
        return None

    def put(self, batch: Batch) -> Iterable[tuple[Head, Batch]]:
        """Return what goes to the peer: messages, and the parts that stand before each of them."""
        return (((), batch),)

    def take(self, batch: Batch) -> Iterable[Batch]:
        """Return what has come from the peer, under its envelopes.  Raises ``RemoteProtocolError``."""
        return (batch,)

    def may_send(self) -> int | None:
        """Return how many messages may be given to ``put`` now; None: any number."""
        return None


class RouterAddressing(Addressing):
    """ROUTER: all parts are the message; the envelope names the peer."""

    _envelope = PLAIN

    def take(self, batch: Batch) -> Iterable[Batch]:
        """Name the peer."""
        if self._envelope.reply_to != self.reply_to:
            self._envelope = Envelope(reply_to=self.reply_to)
        return (batch.under(self._envelope),)


class RepAddressing(Addressing):
    """REP: the addresses of a question are taken off, and put before its answer."""

    before_one = EMPTY_PART

    def __init__(self) -> None:
        # The addresses of the last question and its envelope, compared by identity: an answer under it needs
        # no look at a text.
        self._last: tuple[Head, Envelope] = ((), PLAIN)
        self._direct = PLAIN

    @property
    def envelope(self) -> Envelope:
        """That of questions without addresses.  Always the same one."""
        if self._direct.reply_to != self.reply_to:
            self._direct = Envelope(reply_to=self.reply_to)
        return self._direct

    def put(self, batch: Batch) -> Iterable[tuple[Head, Batch]]:
        """Put the addresses of the question before the answer."""
        hops, question = self._last
        # Mostly it is an answer to the last question.
        if batch.envelope is not question:
            hops = _hops_of(batch.envelope)
        return (((*hops, b""), batch),)

    def take(self, batch: Batch) -> Iterable[Batch]:
        """Take the addresses off.  Consecutive questions with the same ones are one batch."""
        body = _lone_body(batch)
        return self._runs(batch) if body is None else (batch_of_one(body, self._envelope(())),)

    def _runs(self, batch: Batch) -> Iterator[Batch]:
        hops: Head | None = None
        run: list[Any] = []
        for parts in _messages(batch):
            size = _addresses(parts)
            if hops != parts[:size] or len(run[-1]) != len(parts) - size - 1:
                yield from self._run(hops, run)
                hops, run = parts[:size], []
            run.append(parts[size + 1 :])
        yield from self._run(hops, run)

    def _run(self, hops: Head | None, run: list[Any]) -> Iterator[Batch]:
        if hops is not None:
            yield _unwrapped(run, self._envelope(hops))

    def _envelope(self, hops: Head) -> Envelope:
        if not hops:
            self._last = (hops, self.envelope)
            return self._direct
        last, envelope = self._last
        if last != hops or envelope.reply_to != self.reply_to:
            properties = {"correlation_id": _HOPS + ".".join(hop.hex() for hop in hops)}
            envelope = Envelope(reply_to=self.reply_to, properties=properties)
            self._last = (hops, envelope)
        return envelope


class Asking(Addressing):
    """What both forms of REQ have."""

    def __init__(self, *, by_key: bool) -> None:
        self._by_key = by_key

    def _answer(self, messages: list[Any], asked: Envelope) -> Iterator[Batch]:
        """Yield the answer to a question, under the envelope of that or as AMQP workers answer."""
        if not self._by_key:
            yield _unwrapped(messages, asked)
        # Without an address nobody waits for the answer.
        elif asked.reply_to:
            number = asked.properties.get("correlation_id")
            properties = {} if number is None else {"correlation_id": number}
            yield _unwrapped(messages, Envelope(key=asked.reply_to, properties=properties))


class ReqAddressing(Asking):
    """REQ: an empty part before each question.  One question at a time, since answers do not say to which."""

    asks = True

    def __init__(self, *, by_key: bool) -> None:
        super().__init__(by_key=by_key)
        self.before_one = None if by_key else EMPTY_PART

    def put(self, batch: Batch) -> Iterable[tuple[Head, Batch]]:
        """Put the empty part before the question."""
        # The one question that may be open: ``may_send`` lets no second one through before its answer
        # (``Crediting``).
        self.asked = batch.envelope
        return (((b"",), batch),)

    def take(self, batch: Batch) -> Iterable[Batch]:
        """Give the answer the envelope of its question.  What was not asked for is dropped."""
        body = None if self._by_key else _lone_body(batch)
        if body is None:
            return self._answers(batch)
        asked, self.asked = self.asked, None
        return () if asked is None else (batch_of_one(body, asked),)

    def _answers(self, batch: Batch) -> Iterator[Batch]:
        for parts in _messages(batch):
            if len(parts) < 2 or parts[0]:
                raise RemoteProtocolError("an answer without the empty part of its question before it")
            asked, self.asked = self.asked, None
            if asked is not None:
                yield from self._answer([parts[1:]], asked)

    def may_send(self) -> int | None:
        """Return 1 if no question is open."""
        return 1 if self.asked is None else 0


class NumberedAddressing(Asking):
    """REQ with ``correlate``: a number before each question (``ZMQ_REQ_CORRELATE``).

    So any number of questions may be open.
    """

    MOST = 65_536
    """Questions that may be open.  Behind that the oldest is forgotten: its answer will hardly come."""

    def __init__(self, *, by_key: bool) -> None:
        super().__init__(by_key=by_key)
        self._number = 0
        self._open: dict[bytes, Envelope] = {}

    def put(self, batch: Batch) -> Iterator[tuple[Head, Batch]]:
        """Put a number and the empty part before each question."""
        for index in range(len(batch.bodies)):
            # Four octets, as libzmq puts them before a question with ZMQ_REQ_CORRELATE.
            self._number = (self._number + 1) % _NUMBERS
            number = self._number.to_bytes(4, "big")
            # A dict keeps the order in which questions were put in: its first one is the oldest.
            if len(self._open) >= self.MOST:
                del self._open[next(iter(self._open))]
            self._open[number] = batch.envelope
            yield (number, b""), batch.slice(index, index + 1)

    def take(self, batch: Batch) -> Iterator[Batch]:
        """Give each answer the envelope of its question.  What was not asked for is dropped."""
        for parts in _messages(batch):
            if len(parts) < 3 or parts[1]:
                raise RemoteProtocolError("an answer without the number of its question and an empty part")
            asked = self._open.pop(bytes(parts[0]), None)
            if asked is not None:
                yield from self._answer([parts[2:]], asked)


class RelayAddressing(Addressing):
    """DEALER with ``relay``: the name of the port that asks is one more address.

    The answer brings it back.
    """

    def put(self, batch: Batch) -> Iterator[tuple[Head, Batch]]:
        """Put the name before the question."""
        yield (batch.envelope.reply_to.encode("utf-8", "surrogatepass"),), batch

    def take(self, batch: Batch) -> Iterator[Batch]:
        """Take the name off the answers."""
        for parts in _messages(batch):
            if len(parts) < 2:
                raise RemoteProtocolError("an answer without the address of its question before it")
            name = bytes(parts[0]).decode("utf-8", "replace")
            yield _unwrapped([parts[1:]], Envelope(reply_to=name))


def addressing_of(options: ZmtpOptions) -> Addressing | None:
    """Return what a conversation of this socket type does with addresses; None: nothing."""
    kind = options.type
    if kind == "REQ":
        return (NumberedAddressing if options.correlate else ReqAddressing)(by_key=options.answer_by_key)
    if kind == "DEALER":
        return RelayAddressing() if options.relay else None
    if kind == "REP":
        return RepAddressing()
    return RouterAddressing() if kind in ("ROUTER", "SERVER") else None


def _lone_body(batch: Batch) -> Any | None:
    """Return the body of the only message, if there are no addresses before it; else None."""
    if batch.multipart and len(batch.bodies) == 1:
        parts = batch.bodies[0]
        if len(parts) == 2 and not parts[0]:
            return parts[1]
    return None


def _messages(batch: Batch) -> Iterator[tuple[Any, ...]]:
    """Return the parts of each message."""
    return iter(batch.bodies) if batch.multipart else zip(batch.bodies)


def _addresses(parts: tuple[Any, ...]) -> int:
    """Return how many addresses stand before the empty part of a question."""
    # Most often none: a REQ that is connected directly.
    for index, part in enumerate(parts[:-1]):
        if not part:
            return index
    raise RemoteProtocolError(
        "a question without the empty part that ends its addresses; a DEALER has to send that part itself"
    )


def _unwrapped(messages: list[Any], envelope: Envelope) -> Batch:
    """Return messages that have the same number of parts; messages of one part are not multi-part."""
    if len(messages[0]) == 1:
        return batch_of([parts[0] for parts in messages], envelope)
    return batch_of(messages, envelope, multipart=True)


def _hops_of(envelope: Envelope) -> Head:
    """Return the addresses that ``RepAddressing.take`` has put into an envelope."""
    hops = envelope.properties.get("correlation_id")
    if not isinstance(hops, str) or not hops.startswith(_HOPS):
        return ()
    try:
        return tuple(bytes.fromhex(hop) for hop in hops.removeprefix(_HOPS).split("."))
    except ValueError:
        return ()


class Naming(msgspec.Struct, frozen=True):
    """What a peer is called here."""

    peer: str
    """The end of the name of its port."""
    reply_to: str
    """The whole name of its port."""
