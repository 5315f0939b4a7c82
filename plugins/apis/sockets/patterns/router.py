"""ROUTER and STREAM: the first part of a message is the identity of its peer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from kernel.contracts.message import Batch, Buffer, Envelope, batch_of
from plugins.apis.sockets.end import End
from plugins.apis.sockets.errors import SocketError, Unreachable
from plugins.apis.sockets.options import Values
from plugins.apis.sockets.patterns.base import Pattern, batch_of_parts

_REMEMBERED = 4096
"""Identities whose envelopes are kept."""


class Router(Pattern):
    """ROUTER.  What nobody can get is dropped, or is an error with ``router_mandatory``."""

    kind: ClassVar[str] = "ROUTER"
    router: str = "reply"
    alike: ClassVar[bool] = False

    def __init__(self, end: End, values: Values, engine: str) -> None:
        super().__init__(end, values, engine)
        self._envelopes: dict[bytes, Envelope] = {}
        self.dropped = 0
        """Messages for peers that are not there, or whose pipe was full."""
        end.incoming = self._with_identity

    def engine_options(self) -> Mapping[str, Any]:
        """Say who keeps an identity."""
        return {"handover": self.values["router_handover"]}

    def _with_identity(self, batch: Batch) -> Batch:
        identity = batch.envelope.reply_to[len(self.engine) + 1 :].encode("latin-1")
        if batch.multipart:
            bodies: list[Any] = [(identity, *parts) for parts in batch.bodies]
        else:
            bodies = [(identity, body) for body in batch.bodies]
        return batch_of(bodies, batch.envelope, multipart=True)

    def send_parts(self, parts: tuple[Buffer, ...], timeout: float | None) -> None:
        """Send to the peer that the first part names."""
        identity = bytes(parts[0])
        if len(parts) < 2:
            raise ValueError("a ROUTER sends the identity of the peer, and then at least one part")
        batch = batch_of_parts(parts[1:], self._envelope(identity))
        end, mandatory = self.end, self._mandatory()
        end.look()
        if not end.port.wants(batch):
            if mandatory:
                raise Unreachable(f"no peer with the identity {identity!r} is connected to {end.name!r}")
            self.dropped += 1
        elif mandatory or end.room_for(batch):
            end.send(batch, timeout)
        else:
            self.dropped += 1

    def _mandatory(self) -> bool:
        """Whether a message for an unknown peer is an error, and one for a peer without room waits."""
        return bool(self.values["router_mandatory"])

    def send_batch(self, batch: Batch, timeout: float | None) -> None:
        """Send each message to its peer."""
        for body in batch.bodies:
            self.send_parts(body if batch.multipart else (body,), timeout)

    def may_send(self) -> bool:
        """Return True: it depends on the peer, and is seen when one is named."""
        return True

    def _envelope(self, identity: bytes) -> Envelope:
        envelope = self._envelopes.get(identity)
        if envelope is None:
            if len(self._envelopes) >= _REMEMBERED:
                self._envelopes.clear()
            name = f"{self.engine}/{identity.decode('latin-1')}"
            envelope = self._envelopes[identity] = Envelope(reply_to=name)
        return envelope


class Stream(Router):
    """STREAM: a peer speaks plain TCP.  The second part is bytes of its stream.

    If that is empty: the peer has come, or has gone; or it is to be closed.
    """

    kind: ClassVar[str] = "STREAM"

    def engine_options(self) -> Mapping[str, Any]:
        """Say whether peers that come and go are told of."""
        return {"notify": self.values["stream_notify"]}

    def send_parts(self, parts: tuple[Buffer, ...], timeout: float | None) -> None:
        """Send bytes to the peer that the first part names, or close it."""
        if len(parts) != 2:
            raise SocketError("a STREAM sends the identity of the peer, and one part with bytes")
        super().send_parts(parts, timeout)

    def _mandatory(self) -> bool:
        return True
