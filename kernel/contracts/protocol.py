"""Protocol: one conversation with one peer, without any input or output of its own (sans-I/O).

Bytes go in and batches of messages come out, and the other way round.  Time is handed in as ``now``
(seconds of a monotonic clock), chance as a seed at construction; a protocol never asks for either.
A host (``kernel.hosting``) moves the bytes and calls back at the deadline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, runtime_checkable
from typing import Protocol as Interface

import msgspec

from kernel.contracts.message import Batch, Buffer

Side = Literal["client", "server"]
"""Which end of a conversation a protocol object is."""


@runtime_checkable
class LargeBodies(Interface):
    """What a protocol may offer beyond ``StreamProtocol``: receiving a large body into its own buffer."""

    def room(self) -> memoryview:
        """Where the next bytes are best received: the rest of a large body.  Empty: use ``receive_data``."""
        ...

    def read_hint(self, usual: int) -> int:
        """How many bytes are best read next for ``receive_data``, where ``usual`` would be read otherwise."""
        ...

    def filled(self, count: int, now: float) -> list[Batch]:
        """``count`` bytes were received into ``room``, which has been released; otherwise as ``receive_data``."""
        ...


class Refusal(NamedTuple):
    """A message that was given to a protocol, and was not sent or not taken by the peer."""

    number: int
    """The messages given to ``send_batches`` are numbered from 1 on, from the beginning of the conversation."""
    reason: str
    """For people, and for the headers of a dead letter."""


@runtime_checkable
class Refusing(Interface):
    """What a protocol may offer beyond ``StreamProtocol``: not to send what its peer would hang up on."""

    refused: list[Refusal]
    """Messages given to ``send_batches`` that the peer will never have; the host takes them out.

    They may have been sent: a peer may refuse a message in its answer to it.

    ``confirmed`` counts a message that was refused as soon as it counts all before it, so that the flow goes on.
    """


@runtime_checkable
class Answering(Interface):
    """What a protocol may offer beyond ``StreamProtocol``: to tell its peer that nobody wants a message."""

    def unrouted(self, batches: Sequence[Batch], now: float) -> None:
        """These messages, which ``receive_data`` has returned, have nowhere to go (``Port.wants``).

        Called before they are sent to the routes, which count them.  ``data_to_send`` may have the answer.
        """
        ...


@runtime_checkable
class Crediting(Interface):
    """What a protocol may offer beyond ``StreamProtocol``: a peer that says how many messages it takes."""

    def may_send(self) -> int | None:
        """How many messages ``send_batches`` may be given now; None: any number.

        The host asks before each batch, gives at most so many, and asks again after input and after a deadline.
        What waits for credit waits in the pipes, so a peer that gives none holds up the sources as a full socket does.
        """
        ...


@runtime_checkable
class Subscribing(Interface):
    """What a protocol may offer beyond ``StreamProtocol``: to subscribe at its peer.

    The host passes on what the readers of the peer's messages have subscribed to, so that the peer sends nothing else.  It
    subscribes to a pattern once, however many readers want it, and unsubscribes with the last; in each conversation
    again.  Called while ``ready_to_send``.
    """

    def subscribe(self, pattern: str) -> None:
        """Ask the peer for messages whose key matches.  A pattern that the protocol cannot say is left out."""
        ...

    def unsubscribe(self, pattern: str) -> None:
        """Take that back."""
        ...


@runtime_checkable
class Named(Interface):
    """What a protocol may offer beyond ``StreamProtocol``: who the peer says it is.

    Looked at once, when ``ready_to_send`` is True for the first time.  For the listening side, which opens a port for each peer.
    """

    peer_name: str
    """The port's name is the engine's, a slash, and this; empty: the peer's address instead.

    Peers choose it: two may have the same.  ``router = "reply"`` then finds the one that came last.
    """
    peer_options: Mapping[str, Any]
    """Options for the port, which reach the routers of the routes that lead to it: what the peer has said of itself."""


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """What a peer wants to be let in with."""

    mechanism: str
    """As its protocol names it: ``PLAIN`` ..."""
    user: str = ""
    secret: bytes = b""
    """Password, key or token, as the peer has sent it."""
    peer: str = ""
    """The peer's address; the host fills it in."""
    facts: Mapping[str, Any] = {}
    """What else there is to go by: a virtual host, a certificate ..."""


@runtime_checkable
class Authenticating(Interface):
    """What a protocol may offer beyond ``StreamProtocol``: to have somebody decide whether the peer is let in.

    ``ready_to_send`` is False until then.  Messages that the peer sends before are dropped if it is not let in.
    """

    def login(self) -> Login | None:
        """Return what is to be decided now, once; None: nothing yet, nothing more, or nothing at all.

        The host asks after input and after a deadline.
        """
        ...

    def decide(self, reason: str | None, now: float) -> None:
        """None: the peer is let in.  Otherwise it is refused for this reason: say so in ``data_to_send``, and be ``closed``.

        Called after ``login``, maybe much later, and not at all if the conversation ends before.  ``handle_timeout`` sees
        to it that a peer does not wait for ever.
        """
        ...


class ConnectionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to know of one connection."""

    peer: str
    """The peer's address, as an operator sees it."""
    local: str
    """Our own: ``host:port``, or the path of a Unix socket; empty if there is none."""
    encrypted: bool
    """Whether TLS protects it now."""
    certificate: bytes | None
    """The peer's certificate (DER), if it has shown one.  Only a verified one has a ``subject``."""
    subject: str
    """The common name in the peer's certificate, which TLS has verified; else empty."""
    seed: int
    """128 random bits, for nonces and names; other ones for each connection."""
    shared: dict[str, Any]
    """For the protocol's own use: one dict for all conversations of an engine, as long as that lives.  One thread."""


@runtime_checkable
class Told(Interface):
    """What a protocol may offer beyond ``StreamProtocol``: to be told of its connection."""

    def on_connection(self, facts: ConnectionFacts) -> None:
        """The conversation begins.  Called once, before everything else."""
        ...


@runtime_checkable
class UpgradesToTls(Interface):
    """What a protocol may offer beyond ``StreamProtocol``: TLS that begins in the middle (STARTTLS).

    Both ends have to know at which byte.  What a peer sends in the clear behind that byte is not to be believed: a protocol
    that finds such bytes in ``receive_data`` raises ``RemoteProtocolError``.
    """

    def wants_tls(self) -> bool:
        """Whether TLS is to begin now, behind what ``data_to_send`` gives.

        Asked at the beginning, after input and after a deadline.  From True until ``tls_started`` nothing is read and
        nothing is sent; what the protocol has to send meanwhile goes over TLS.
        """
        ...

    def tls_started(self, facts: ConnectionFacts, now: float) -> None:
        """The handshake is over: all that follows is protected.  ``wants_tls`` is False from now on.

        If the handshake fails, the connection ends, and this is not called.
        """
        ...


@runtime_checkable
class Observable(Interface):
    """What a protocol may offer beyond ``StreamProtocol``: figures and facts of its own, for operators.

    Both methods are cheap, do not wait, and may be called at any time: ``counters`` by any thread.
    """

    def counters(self) -> Mapping[str, int]:
        """Return numbers that only grow, by name.

        They stand in the row of the connection (``kernel connections``).  The engine's statistics have the sums over all its
        conversations, those that have ended included.
        """
        ...

    def status(self) -> Mapping[str, Any]:
        """Return what else an operator may want to know of the conversation now: text, numbers, truth values, by name."""
        ...


@runtime_checkable
class StreamProtocol(Interface):
    """A protocol over an ordered stream of bytes (tcp, unix, tls).

    All methods are called by one thread, the host's, and never wait.  A protocol may offer one or more of the interfaces
    above as well.
    """

    def receive_data(self, data: Buffer, now: float) -> list[Batch]:
        """Take bytes from the peer; return the batches that are complete, in order.

        ``data`` may be kept (bodies may be views of it).  Raises ``RemoteProtocolError`` and nothing
        else on bad bytes; the host then writes ``data_to_send()`` as far as it can and hangs up.
        """
        ...

    def receive_eof(self, now: float) -> None:
        """Take notice that the peer will send no more.  Raises ``RemoteProtocolError`` in mid-message."""
        ...

    def send_batches(self, batches: Sequence[Batch], now: float) -> None:
        """Queue batches for sending.  The bytes are fetched with ``data_to_send``."""
        ...

    def data_to_send(self) -> list[Buffer]:
        """Return and forget what is to be written now; an empty list when there is nothing."""
        ...

    def ready_to_send(self) -> bool:
        """Whether ``send_batches`` may be called: the handshake is over, the conversation is open, the peer takes some.

        The host asks before each batch, and asks again after input and after a deadline.  The first True opens the
        port.  A protocol may say False later: messages then wait in the pipes.
        """
        ...

    def next_deadline(self) -> float | None:
        """The time at which ``handle_timeout`` wants to be called; None: never."""
        ...

    def handle_timeout(self, now: float) -> None:
        """Do what is due.  Raises ``RemoteProtocolError`` when the peer has been silent for too long."""
        ...

    def confirm(self, count: int) -> None:
        """All destinations have confirmed the first ``count`` messages received here: tell the peer.

        Cumulative since the beginning of the conversation.  A protocol without confirmations ignores it.
        """
        ...

    def want_confirm(self) -> None:
        """Somebody here waits for confirmations: ask the peer for them, if it has to be asked."""
        ...

    def confirmed(self) -> int | None:
        """How many of the messages sent here the peer has confirmed, cumulatively.

        None: this peer does not confirm; then what was written to the wire counts as confirmed.
        """
        ...

    subscriptions: list[tuple[str, str]]
    """What the peer has asked for and the host has not yet taken out: (``subscribe`` or ``unsubscribe``, pattern)."""

    def close(self, reason: str, now: float) -> None:
        """Say good-bye: ``data_to_send`` has the last words."""
        ...

    def closed(self) -> bool:
        """Whether the conversation has ended in good order; the host then hangs up."""
        ...
