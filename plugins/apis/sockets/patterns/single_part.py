"""CLIENT and SERVER, RADIO and DISH, SCATTER and GATHER: messages have one part.

In libzmq they are drafts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from kernel.contracts.message import Batch, Buffer, Envelope, batch_of_one
from plugins.apis.sockets.end import End, PublishingEnd
from plugins.apis.sockets.errors import NotSupported, SocketError, Unreachable
from plugins.apis.sockets.options import Values
from plugins.apis.sockets.patterns.base import Pattern, ReceivingPattern
from plugins.apis.sockets.patterns.publish_subscribe import Pub, Subscriber
from plugins.apis.sockets.patterns.shared_out import Push
from plugins.protocols.zmtp.keys import KEY_LIMIT, group_of, group_text

_REMEMBERED = 4096
"""Peers or groups whose envelopes are kept."""


class SinglePart(Pattern):
    """A type whose messages have one part."""

    def send_parts(self, parts: tuple[Buffer, ...], timeout: float | None) -> None:
        """Send one message."""
        super().send_parts(self._one(parts), timeout)

    def send_batch(self, batch: Batch, timeout: float | None) -> None:
        """Send messages."""
        for parts in batch.bodies if batch.multipart else ():
            self._one(parts)
        super().send_batch(batch, timeout)

    def _one(self, parts: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
        if len(parts) != 1:
            raise SocketError(f"{self.kind} sends messages of one part, and this one has {len(parts)}")
        return parts


class Client(SinglePart):
    """CLIENT."""

    kind: ClassVar[str] = "CLIENT"
    lends: ClassVar[bool] = True
    router: str = "round-robin"


class Scatter(SinglePart, Push):
    """SCATTER."""

    kind: ClassVar[str] = "SCATTER"

    def before_receiving(self) -> None:
        """Refuse: nothing comes."""
        raise NotSupported("SCATTER does not receive; GATHER does")


class Gather(ReceivingPattern):
    """GATHER."""

    kind: ClassVar[str] = "GATHER"
    instead: ClassVar[str] = "SCATTER does"


class Server(SinglePart):
    """SERVER.  Each message is for the peer that its routing id names."""

    kind: ClassVar[str] = "SERVER"
    router: str = "reply"
    alike: ClassVar[bool] = False

    def send_parts(self, parts: tuple[Buffer, ...], timeout: float | None) -> None:
        """Refuse: for whom is it?"""
        self._one(parts)
        raise Unreachable(
            "a SERVER sends to one peer: send_to(routing_id, body); recv_from() tells who has sent"
        )

    def send_batch(self, batch: Batch, timeout: float | None) -> None:
        """Refuse."""
        self.send_parts((b"",), timeout)

    def may_send(self) -> bool:
        """Return True: it depends on the peer, and is seen when one is named."""
        return True

    def send_to(self, routing_id: int, body: Buffer, timeout: float | None) -> None:
        """Send a message to one peer."""
        end = self.end
        end.look()
        name = f"{self.engine}/{_identity(routing_id)}"
        batch = batch_of_one(body, Envelope(reply_to=name))
        if not end.port.wants(batch):
            raise Unreachable(f"no peer with the routing id {routing_id} is connected to {end.name!r}")
        end.send(batch, timeout)

    def sender_of(self, envelope: Envelope) -> int:
        """Return the routing id of the peer that has sent a message."""
        name = envelope.reply_to[len(self.engine) + 1 :]
        return int.from_bytes(name[1:].encode("latin-1"), "big")


def _identity(routing_id: int) -> str:
    """Return the name of a peer: its engine makes up identities of a zero byte and four others."""
    if not 0 < routing_id < 1 << 32:
        raise SocketError(f"{routing_id} is no routing id: recv_from() tells those of peers")
    return "\0" + routing_id.to_bytes(4, "big").decode("latin-1")


class Radio(Pub):
    """RADIO.  What finds the pipe of a peer full is dropped for this peer, and counted."""

    kind: ClassVar[str] = "RADIO"
    alike: ClassVar[bool] = False

    def __init__(self, end: End, values: Values, engine: str) -> None:
        super().__init__(end, values, engine)
        self._envelopes: dict[bytes, Envelope] = {}

    def engine_options(self) -> Mapping[str, Any]:
        """Say that messages have a group.

        Conversations compare it as a whole, and the router its beginning.
        """
        return {"key_part": True}

    def send_parts(self, parts: tuple[Buffer, ...], timeout: float | None) -> None:
        """Send a message of the empty group."""
        if len(parts) != 1:
            raise SocketError(f"RADIO sends messages of one part, and this one has {len(parts)}")
        self.send_group(b"", parts[0])

    def send_batch(self, batch: Batch, timeout: float | None) -> None:
        """Send messages of the empty group."""
        for body in batch.bodies:
            self.send_parts(body if batch.multipart else (body,), timeout)

    def send_group(self, group: bytes, body: Buffer) -> None:
        """Send a message to all who have joined its group."""
        envelope = self._envelopes.get(group)
        if envelope is None:
            if len(self._envelopes) >= _REMEMBERED:
                self._envelopes.clear()
            envelope = self._envelopes[group] = Envelope(key=group_text(checked_group(group)))
        self.end.look()
        self.end.port.send((batch_of_one(body, envelope),))

    def before_receiving(self) -> None:
        """Refuse: nothing comes."""
        raise NotSupported("RADIO does not receive; DISH does")

    def subscribers(self, topic: bytes | None) -> int:
        """Return how many peers have joined a group."""
        assert isinstance(self.end, PublishingEnd)
        return self.end.subscribers(topic, exact=True)


class Dish(ReceivingPattern, Subscriber):
    """DISH."""

    kind: ClassVar[str] = "DISH"
    instead: ClassVar[str] = "RADIO does"

    def engine_options(self) -> Mapping[str, Any]:
        """Say that messages have a group."""
        return {"key_part": True}

    def subscribe(self, prefix: bytes) -> None:
        """Refuse."""
        raise NotSupported("DISH does not subscribe to prefixes; it joins groups: join(group)")

    unsubscribe = subscribe

    def join(self, group: bytes) -> None:
        """Ask for messages of a group."""
        if self._prefixes[checked_group(group)]:
            raise SocketError(f"this DISH has joined the group {group!r} already")
        super().subscribe(group)

    def leave(self, group: bytes) -> None:
        """Take a ``join`` back."""
        if not self._prefixes[group]:
            raise SocketError(f"this DISH has not joined the group {group!r}")
        super().unsubscribe(group)

    def group_of(self, envelope: Envelope) -> bytes:
        """Return the group of a message."""
        return group_of(envelope)


def checked_group(group: bytes) -> bytes:
    """Return a name of a group that fits onto the wire, and into libzmq's functions."""
    if len(group) > KEY_LIMIT or b"\0" in group:
        raise SocketError(f"{group[:40]!r}: a group has at most {KEY_LIMIT} bytes, and none of them is zero")
    return group
