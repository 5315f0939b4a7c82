"""A peer on a wire: its login, and what is known of it, which goes into the envelopes of what it sends."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from kernel.contracts.engine import Host, Port
from kernel.contracts.message import Batch, Envelope
from kernel.contracts.protocol import Login
from kernel.hosting.stream_host import Decide
from kernel.hosting.wire import Wire
from plugins.engines.zmq.logins import Decision, Logins
from plugins.engines.zmq.options import ZmqOptions
from plugins.engines.zmq.zap_question import ZapQuestion

_NOTHING: Mapping[str, str] = MappingProxyType({})
_IDENTITY, _ROUTING_ID = "Identity", "Routing-Id"
"""The name on the wire, and that of libzmq's API."""
_CREDENTIALS = struct.Struct("3i")
"""Linux: process, user and group."""


class Admission:
    """The admission of one peer."""

    def __init__(self, options: ZmqOptions, logins: Logins, host: Host, wire: Wire) -> None:
        self.user = ""
        """Empty: it has not logged in."""
        self._options = options
        self._logins = logins
        self._host = host
        self._wire = wire
        self._facts: dict[str, str] = {}
        self._question: ZapQuestion | None = None

    def ask(self, login: Login, decide: Decide) -> None:
        """Have a login decided on."""

        def decided(decision: Decision) -> None:
            if decision.refused is None:
                self.user = decision.user
                self._facts.update(decision.facts)
            decide(decision.refused)

        self._question = self._logins.ask(login, address_of(self._wire), self._host, decided)

    def end(self) -> None:
        """The conversation is over, so nobody waits for a decision."""
        if self._question is not None:
            self._question.close()

    def describe(self, metadata: Mapping[str, bytes]) -> None:
        """Add what libzmq knows of a peer: what it has said of itself, and its address."""
        facts = {name: value.decode("utf-8", "replace") for name, value in metadata.items()}
        if _IDENTITY in facts:
            facts[_ROUTING_ID] = facts[_IDENTITY]
        facts["Peer-Address"] = address_of(self._wire)
        # What the login has brought is last: what a peer says of itself must not replace what somebody has
        # decided about it.
        self._facts = {**facts, **self._facts}

    def stamped(self, port: Port) -> Port:
        """Return a port that adds to messages what is known of their peer, and what the options say."""
        return stamped(port, self._options, self.user, self._facts)


def address_of(wire: Wire) -> str:
    """Return the IP address of the peer; for a Unix socket ``:UID:GID:PID`` of its process, as in libzmq."""
    connected = wire.connected
    try:
        if connected is None:
            return ""
        # The type of ``connected`` decides, not the address of the place: a peer of ``ipc`` has no IP
        # address, and its process is all that a handler of ZAP can judge it by.
        if connected.family == socket.AF_UNIX:
            if not hasattr(socket, "SO_PEERCRED"):
                return ""  # macOS
            pid, uid, gid = _CREDENTIALS.unpack(
                connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            )
            return f":{uid}:{gid}:{pid}"
        return str(connected.getpeername()[0])
    except OSError:
        return ""  # the peer has reset the connection already


def stamped(port: Port, options: ZmqOptions, user: str = "", facts: Mapping[str, str] = _NOTHING) -> Port:
    """Return a port that writes into envelopes of the peer what the options say, and who it is."""
    properties: dict[str, Any] = {"headers": facts} if facts else {}
    if user:
        properties["user_id"] = user
    # Most sockets need no stamp. Then there is not one call more for a batch.
    if not (properties or options.exchange or options.key):
        return port
    return Stamp(port, options.exchange, options.key, properties)


class Stamp:
    """Wraps a port: what the peer sends has an exchange, a key, and properties of the peer."""

    def __init__(self, port: Port, exchange: str, key: str, properties: Mapping[str, Any]) -> None:
        self.bare: Port = port
        """The port itself."""
        self._exchange = exchange
        self._key = key
        self._properties = properties
        self._last: Envelope | None = None
        self._stamped: Envelope | None = None

    def send(self, batches: Sequence[Batch]) -> bool:
        """Route batches, each under an envelope with the stamp."""
        return self.bare.send([self._stamp(batch) for batch in batches])

    def _stamp(self, batch: Batch) -> Batch:
        # Batches of one flow share their envelope, and so they share the stamped one.
        envelope = batch.envelope
        if envelope is not self._last:
            self._last = envelope
            # The key of the peer's message is more exact than the option, which is for messages that bring
            # none.
            changes: dict[str, Any] = {"exchange": self._exchange, "key": envelope.key or self._key}
            if self._properties:
                changes["properties"] = {**envelope.properties, **self._properties}
            self._stamped = msgspec.structs.replace(envelope, **changes)
        assert self._stamped is not None
        return batch.under(self._stamped)

    def __getattr__(self, name: str) -> Any:
        # All else of a port is passed through, so this class need not follow each change of ``Port``.
        # ``send`` is the only method by which a peer's messages get to the routes.
        return getattr(self.bare, name)
