"""Protocol: one conversation with one peer, without any input or output of its own (sans-I/O).

Bytes go in and batches of messages come out, and the other way round.  Time is handed in as ``now`` (seconds
of a monotonic clock), random numbers come from a seed at construction: a protocol has no clock and no source
of randomness of its own.  A host (``kernel.hosting``) moves the bytes and calls back at the deadline.

``StreamProtocol`` is what every stream protocol has.  The other interfaces are optional: a protocol that has
their methods is treated accordingly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, runtime_checkable
from typing import Protocol as Interface

import msgspec

from kernel.contracts.message import Batch, Buffer

Side = Literal["client", "server"]
"""Which end of a conversation a protocol object is."""


# A host looks once for each *class* of protocols which of the optional interfaces it has, since
# ``isinstance`` takes 10 us here. So all objects of a class have to have the same, from their construction
# on.
@runtime_checkable
class LargeBodies(Interface):
    """Optional: a protocol that receives a large body into a buffer of its own."""

    def room(self) -> memoryview:
        """Return the memory for the rest of a large body.

        Empty if the next bytes are for ``receive_data``.
        """
        ...

    def read_hint(self, usual: int) -> int:
        """Return how many bytes to read next for ``receive_data``; the host would read ``usual`` bytes.

        0: while ``room`` has memory.
        """
        ...

    # Released, because a ``bytearray`` of which a view exists cannot be resized.
    def filled(self, count: int, now: float) -> list[Batch]:
        """Process ``count`` bytes that were received into ``room``.

        The host has released that memory before.

        Returns and raises what ``receive_data`` does.
        """
        ...


@runtime_checkable
class ShortMessages(Interface):
    """Optional: single small messages under the envelope ``PLAIN``, without a batch around them.

    For an application thread that reads and writes the socket itself.
    """

    sent: int
    """Messages sent in this conversation.  Whoever writes what ``encode_one`` has returned adds 1."""

    # Changes nothing, because the socket may turn out to be full: then ``send_batches`` encodes the message
    # once more.
    def encode_one(self, body: bytes) -> bytes | None:
        """Return the bytes of one message; None if ``send_batches`` has to be used.  Changes nothing."""
        ...

    def decode_one(self, data: bytes) -> bytes | None:
        """Return the body if ``data`` is one message and nothing else.

        None if ``receive_data`` has to be used.

        Changes nothing.
        """
        ...


class Refusal(NamedTuple):
    """A message that was given to a protocol, and was not sent or not taken by the peer."""

    number: int
    """The messages given to ``send_batches`` are numbered from 1 on, from the beginning of the
    conversation."""
    reason: str
    """For operators, and for the headers of a dead letter."""


@runtime_checkable
class Refusing(Interface):
    """Optional: a protocol that does not send messages for which its peer would close the connection."""

    refused: list[Refusal]
    """Messages given to ``send_batches`` that the peer has not got and will not get.  The host empties the
    list.

    They may have been sent: some peers refuse a message in their answer to it.

    ``confirmed`` includes a refused message as soon as it includes all messages before it.  So a refusal does
    not stop the confirmations of later messages.
    """


@runtime_checkable
class Answering(Interface):
    """Optional: a protocol that tells its peer when no route takes a message."""

    def unrouted(self, batches: Sequence[Batch], now: float) -> None:
        """Take notice that no route takes these messages of ``receive_data`` (``Port.wants``).

        Called before they are sent to the routes, which count them.  ``data_to_send`` may then have an
        answer.
        """
        ...


@runtime_checkable
class Mixing(Interface):
    """Optional: a protocol that sends mixed batches (``kernel.contracts.mixed_batch``), and makes them."""

    # It stays false for a protocol that is ``Crediting`` or ``Answering`` as well: credit and answers are for
    # single messages.
    mixing: bool
    """Whether ``receive_data`` may return mixed batches.  The host sets it."""


@runtime_checkable
class ToldOfSubscriptions(Interface):
    """Optional: a protocol that wants to know when its peer's subscriptions are in effect."""

    def subscribed(self, now: float) -> None:
        """All ``subscriptions`` that the host has taken out so far are in effect at their sources.

        Called after the host has taken some out, at once or later.  A thread of the application applies them
        in its next call, and a source may wait for its own peer (``Syncing``).  So do not let a peer wait for
        this without a limit.  ``data_to_send`` may have the answer.
        """
        ...


@runtime_checkable
class Crediting(Interface):
    """Optional: a protocol whose peer says how many messages it takes (credit)."""

    def may_send(self) -> int | None:
        """Return how many messages may be given to ``send_batches`` now; None: any number.

        The host asks before each batch, gives at most this number, and asks again after input and after a
        deadline. Messages without credit wait in the pipes.  So a peer that gives none stops the sources as a
        full socket does.
        """
        ...


@runtime_checkable
class Subscribing(Interface):
    """Optional: a protocol that can subscribe at its peer.

    The host passes on what the readers of the peer's messages have subscribed to, so that the peer sends
    nothing else. It subscribes to each pattern once, however many readers want it, and unsubscribes when the
    last reader does.  Each conversation begins without subscriptions.  The methods are called while
    ``ready_to_send`` is true.  What readers change while it is false is made up for when the host finds it
    true again.
    """

    def subscribe(self, pattern: str) -> None:
        """Ask the peer for messages whose key matches.

        Patterns that the protocol cannot express are ignored.
        """
        ...

    def unsubscribe(self, pattern: str) -> None:
        """Take back a ``subscribe``."""
        ...


@runtime_checkable
class HoldsBack(Interface):
    """Optional, with ``Subscribing``: a peer may send before it can have been subscribed at.

    What comes in the same read as the end of the handshake is held back, since what of it readers want is
    only known when they have subscribed.
    """

    def held_back(self) -> list[Batch]:
        """Return what of it readers want, once.  Called when they have subscribed."""
        ...


# The bytes of a connection keep their order, so a number is enough, and no list of patterns has to be sent.
@runtime_checkable
class Syncing(Interface):
    """Optional for a ``Subscribing`` protocol: the peers ask each other when subscriptions are in effect.

    A question has a number.  It is about all subscriptions that were sent before it.  A host that does not
    call ``offer_sync`` does not take part, and then the peer has to be told so.
    """

    def offer_sync(self, on_sync: Callable[[int, int], Any], on_synced: Callable[[int], Any]) -> None:
        """Take part.  Called once, before all other methods but ``Told.on_connection``.

        ``on_sync(number, hops)`` is to be called for each question of the peer, and ``on_synced(number)`` for
        each of its answers, once ``ready_to_send`` has been true.  This may be in the middle of
        ``receive_data``: the host only notes it.  ``hops`` is what the peer has given to ``sync``.  The
        protocol limits how many questions of the peer are open at a time.
        """
        ...

    def can_sync(self) -> bool:
        """Return whether the peer answers questions.  Asked once ``ready_to_send`` has been true."""
        ...

    def sync(self, number: int, hops: int) -> None:
        """Ask the peer whether all that was subscribed to is in effect.

        ``hops``: the connections behind the peer that the question may still cross, so that it ends in a
        ring.  The host has at most ``kernel.contracts.engine.HOPS`` questions open at a time.
        """
        ...

    def answer_sync(self, number: int) -> None:
        """Answer a question of the peer."""
        ...


@runtime_checkable
class Named(Interface):
    """Optional: a protocol whose peer gives its name.

    The host reads it once, when ``ready_to_send`` is true for the first time.  Only listeners use it: they
    open a port for each peer.
    """

    peer_name: str
    """The name of the port is the engine's name, a slash, and this.  If it is empty, the peer's address is
    used.

    Peers choose their names, so two peers may have the same.  ``router = "reply"`` then sends to the one that
    came last.
    """
    peer_options: Mapping[str, Any]
    """Options of the port, from what the peer has said.  Routers of routes that lead to the port get them."""


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """The credentials of a peer."""

    mechanism: str
    """The authentication mechanism, by its name in the protocol: ``PLAIN`` ..."""
    user: str = ""
    secret: bytes = b""
    """Password, key or token, as the peer has sent it."""
    peer: str = ""
    """The peer's address; the host fills it in."""
    facts: Mapping[str, Any] = {}
    """What else may be decisive: a virtual host, a certificate ..."""


@runtime_checkable
class Authenticating(Interface):
    """Optional: a protocol whose peer has to authenticate.  The engine decides whether it may go on.

    ``ready_to_send`` is false until the peer is accepted.  Messages that it sends before are dropped if it is
    refused.
    """

    def login(self) -> Login | None:
        """Return the peer's credentials once, when they are complete; None before and after that.

        The host asks after input and after a deadline.
        """
        ...

    # Much later if the engine that decides is in another thread, or if the host holds a refusal back, so that
    # passwords cannot be tried quickly.
    def decide(self, reason: str | None, now: float) -> None:
        """Accept the peer (None), or refuse it for this reason.

        A protocol that refuses has its answer in ``data_to_send``, and is ``closed``.  Called after
        ``login``, maybe much later, and not at all if the conversation ends before.  ``handle_timeout`` has
        to limit how long a peer waits.
        """
        ...


class ConnectionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a protocol can know about its connection."""

    peer: str
    """The peer's address, as operators see it."""
    local: str
    """Our own address: ``host:port``, or the path of a Unix socket; empty if there is none."""
    encrypted: bool
    """Whether TLS protects it now."""
    certificate: bytes | None
    """The peer's certificate (DER), if it has shown one.  Only a verified one has a ``subject``."""
    subject: str
    """The common name in the peer's certificate, which TLS has verified; else empty."""
    # Protocols have no source of randomness of their own, so that a test can repeat what they do.
    seed: int
    """128 random bits, for nonces and names; different for each connection."""
    shared: dict[str, Any]
    """For the protocol's own use: one dict for all conversations of an engine, until the engine ends.  One
    thread."""


@runtime_checkable
class Told(Interface):
    """Optional: a protocol that wants to know its connection."""

    def on_connection(self, facts: ConnectionFacts) -> None:
        """Take the facts of the connection.  Called once, before all other methods."""
        ...


@runtime_checkable
class UpgradesToTls(Interface):
    """Optional: a protocol in which TLS begins in the middle of a conversation (STARTTLS).

    Both ends have to know at which byte TLS begins.  Plain bytes behind that byte may come from an attacker:
    a protocol that finds such bytes in ``receive_data`` raises ``RemoteProtocolError``.
    """

    # Neither reads nor writes: what comes next is the handshake of TLS, which the host does with the same
    # socket.
    def wants_tls(self) -> bool:
        """Return whether TLS has to begin now, after what ``data_to_send`` returns.

        The host asks at the beginning, after input and after a deadline.  After True it neither reads nor
        writes until ``tls_started``.  What the protocol has to send in the meantime is sent over TLS.
        """
        ...

    def tls_started(self, facts: ConnectionFacts, now: float) -> None:
        """Take notice that the handshake is over and everything that follows is encrypted.

        ``wants_tls`` is false from now on.  If the handshake fails, the connection ends, and this is not
        called.
        """
        ...


@runtime_checkable
class Observable(Interface):
    """Optional: a protocol that has figures and facts of its own for operators.

    Both methods are cheap, do not wait, and may be called at any time: ``counters`` by any thread.
    """

    def counters(self) -> Mapping[str, int]:
        """Return numbers that only grow, by name.

        They stand in the row of the connection (``kernel connections``).  The engine's statistics have the
        sums over all its conversations, those that have ended included.
        """
        ...

    def status(self) -> Mapping[str, Any]:
        """Return what else an operator may want to know of the conversation now.

        Text, numbers and truth values, by name.
        """
        ...


@runtime_checkable
class StreamProtocol(Interface):
    """A protocol over an ordered stream of bytes (tcp, unix, tls).

    All methods are called by one thread, the host's, and must not wait.
    """

    # A new object for each read, into which nobody writes later: so bodies need no copy.
    def receive_data(self, data: Buffer, now: float) -> list[Batch]:
        """Take bytes from the peer; return the batches that are complete, in order.

        ``data`` may be kept (bodies may be views of it).  Raises ``RemoteProtocolError`` and nothing
        else on bad bytes; the host then writes ``data_to_send()`` as far as it can and closes the connection.
        """
        ...

    def receive_eof(self, now: float) -> None:
        """Take notice that the peer sends no more.

        Raises ``RemoteProtocolError`` in the middle of a message.
        """
        ...

    def send_batches(self, batches: Sequence[Batch], now: float) -> None:
        """Queue batches for sending.  The bytes are fetched with ``data_to_send``.

        Called only after ``ready_to_send`` was true; otherwise it raises ``LocalProtocolError``.  Do not
        raise for a message that the protocol cannot carry: put it into ``refused`` (``Refusing``).  After a
        ``LocalProtocolError`` the host refuses all of these messages and ends the connection, because it does
        not know which one was the cause.  Any other exception ends the engine, with all its connections.
        """
        ...

    # A list, which a socket takes with ``sendmsg``: bodies are not copied into one buffer before.
    def data_to_send(self) -> list[Buffer]:
        """Return what has to be written now, once; an empty list if there is nothing."""
        ...

    def ready_to_send(self) -> bool:
        """Return whether ``send_batches`` may be called: the handshake is over and the peer takes messages.

        The host asks before each batch, after input, after a deadline, and after ``decide`` and
        ``tls_started``.  It opens the port at the first True.  A protocol may return False later: messages
        then wait in the pipes.
        """
        ...

    def next_deadline(self) -> float | None:
        """Return the time at which ``handle_timeout`` has to be called; None: not at all."""
        ...

    # At the beginning, because a protocol has no clock and its first deadline depends on the time.
    def handle_timeout(self, now: float) -> None:
        """Do what is due at ``now``.

        Raises ``RemoteProtocolError`` if the peer has been silent for too long.

        May be called before the deadline, and is called once at the beginning of the conversation.
        """
        ...

    def confirm(self, count: int) -> None:
        """Tell the peer that all destinations have confirmed the first ``count`` messages received here.

        ``count`` is cumulative since the beginning of the conversation.  If no route confirms, this is called
        as soon as the messages were passed to the routes.  ``data_to_send`` may then have an answer.  A
        protocol without confirmations ignores it.
        """
        ...

    def want_confirm(self) -> None:
        """Ask the peer for confirmations, if the protocol has to: a source here waits for them.

        Called at most once in a conversation, just before ``send_batches`` of the first messages for which a
        source waits.
        """
        ...

    def confirmed(self) -> int | None:
        """Return how many of the messages sent in this conversation the peer has confirmed.

        Cumulative.  None: the peer does not confirm.  Then a message counts as confirmed when its bytes are
        with the operating system.  The host asks after input, after a deadline, and when all bytes were
        written.
        """
        ...

    # The same list for the whole conversation: the host clears it and does not replace it.
    subscriptions: list[tuple[str, str]]
    """What the peer has asked for: (``subscribe`` or ``unsubscribe``, pattern).  The host empties the list
    once the port is open.  Always empty in a protocol without subscriptions.

    Patterns are spelled as routes spell them (``kernel.contracts.key_trie``, ``kernel.contracts.groups``).
    There ``group:`` and ``prefix:`` at the beginning have a meaning.  A protocol in which they are plain text
    has to convert or refuse a peer's pattern that begins so.
    """

    def close(self, reason: str, now: float) -> None:
        """End the conversation in good order.  ``data_to_send`` then has the last bytes for the peer."""
        ...

    def closed(self) -> bool:
        """Return whether the conversation has ended in good order.  The host then closes the connection."""
        ...
