"""A stream each way, between an association and a port.

``StreamInput`` leads from the association to the port, ``StreamOutput`` from the port to the association.
This object gets the calls of the port's owner: the port has input, has room again, or was confirmed. It is
also called when the association has made progress. ``_advance`` forgets what is acknowledged, sends what
there is room for, and notes whether this stream waits for anything.

A stream that waits is in ``Conversation.waiting``, and is looked at when the association makes progress.
Others are not: an association may have a thousand streams, of which few are busy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel.contracts.engine import Port
from kernel.contracts.errors import RemoteProtocolError
from plugins.engines.sctp.framing import BackendFraming, Framing, Greeting, Kind, PlainFraming
from plugins.engines.sctp.growing_window import GrowingWindow
from plugins.engines.sctp.stream_input import StreamInput
from plugins.engines.sctp.stream_output import Limits, StreamOutput

if TYPE_CHECKING:
    from kernel.hosting.lease import Lease
    from plugins.engines.sctp.conversation import Conversation

_DATA = (Kind.UNIT, Kind.COUNTED, Kind.FRAGMENT)


class SctpStream:
    """The owner of a port, or the object that the owner forwards its calls to."""

    def __init__(self, conversation: Conversation, stream: int) -> None:
        self._stream = stream
        self._conversation = conversation
        self._port: Port | None = None
        options = conversation.options
        plain = conversation.plain
        self._framing: Framing = PlainFraming() if plain else BackendFraming(options.max_message)
        window = None if plain else self._growing(options.stream_window)
        self.input = StreamInput(
            self._framing, self._send_control, max_message=options.max_message, window=window
        )
        self.output: StreamOutput | None = None

    def open(self, port: Port, greeting: Greeting) -> None:
        """Open the stream with its port and the peer's greeting."""
        conversation = self._conversation
        options, plain = conversation.options, conversation.plain
        self._port = self.input.port = port
        limits = Limits(
            buffer=self._growing(options.stream_buffer),
            window=None if plain else greeting.window,
            # With ``plain`` the peer announces no largest message. One that is larger than its receive window
            # could not arrive (docs/decisions/0012-sctp.md).
            largest=conversation.association.sender.peer_window if plain else greeting.max_message,
            protocol_id=options.protocol_id if plain else None,
        )
        self.output = StreamOutput(
            conversation.association,
            self._stream,
            self._framing,
            port,
            limits,
            send_control=self._send_control,
            now=conversation.host.now,
            on_refused=conversation.refuse,
        )
        self.output.begin()

    def _growing(self, most: int) -> GrowingWindow:
        conversation = self._conversation
        return GrowingWindow(most, conversation.host.now, conversation.association.round_trip)

    def close(self) -> None:
        """End the stream. The port is not closed here: that is up to the role."""
        self.input.end()
        # From now on no call of the port's owner reaches the association.
        self._port = None
        self._conversation.host.set_timer(None, self._on_expiry, self)

    @property
    def pending_bytes(self) -> int:
        """Bytes that the port has not taken."""
        return self.input.pending_bytes

    def pending(self) -> bool:
        """Whether the peer lacks something that was taken, or the port has input."""
        if self._port is None or self.output is None:
            return False
        return not self.output.is_idle() or self._port.has_input()

    @property
    def number(self) -> int:
        """The stream of the association on which it sends."""
        return self._stream

    # ------------------------------------------------------------------ from the association

    def receive(self, kind: int, data: list[bytes]) -> None:
        """Take consecutive user messages of one kind.  Raises ``RemoteProtocolError``."""
        assert self._port is not None
        assert self.output is not None
        # With ``plain`` the payload protocol identifier is the application's, and says nothing here.
        if self._conversation.plain or kind in _DATA:
            self.input.receive(kind, data)
            return
        for payload in data:
            if kind == Kind.CONFIRM:
                self.output.on_confirm(_number(payload))
            elif kind == Kind.WINDOW:
                self.output.on_window(_number(payload))
            elif kind == Kind.SENT:
                self.input.on_sent(_number(payload))

    def on_progress(self) -> None:
        """Called when the association has changed: there may be room to send."""
        self._advance()

    # ------------------------------------------------------------------ the port's owner

    def on_output(self) -> None:
        """Called when the port's pipes have input."""
        if self._advance():
            self._conversation.flush()

    def _advance(self) -> bool:
        output = self.output
        if output is None or self._port is None or not self._conversation.may_send():
            return False
        # Before sending: what was acknowledged makes the room.
        output.collect_acknowledged()
        if output.send():
            # There is more to send: in a later turn, after the neighbours.
            self._conversation.host.soon(self.on_output)
        host = self._conversation.host
        # Messages expire inside the association without an event, and only when it is flushed.
        if (due := output.next_expiry()) is not None and due > host.now():
            host.set_timer(due, self._on_expiry, self)
        if self.pending():
            # Only streams in this table are visited when the association makes progress, not all of up to
            # 1,024.
            self._conversation.waiting[self] = None
        else:
            self._conversation.waiting.pop(self, None)
        return True

    def _on_expiry(self) -> None:
        """Called when messages of this stream expire.

        The association abandons them when it is flushed, and that makes room.
        """
        self._conversation.flush()
        if self._advance():
            self._conversation.flush()

    def on_writable(self) -> None:
        """Called when the port's pipes have room again."""
        if self._port is not None:
            self.input.resume()
            if self._conversation.plain:
                # The association was not read while this port was full: read what has arrived since.
                self._conversation.progress(self._conversation.host.now())
            self._conversation.flush()

    def on_confirmed(self, position: int) -> None:
        """Called when destinations have confirmed messages, with the port's cumulative count."""
        if self._port is not None:
            self.input.on_confirmed(position)
            self._conversation.flush()

    def on_lease_asked(self, lease: Lease) -> None:
        """Called when the thread of an application asks for a lease of the socket."""
        if self._port is not None:
            self._conversation.lend(self, lease)

    def _send_control(self, kind: Kind, number: int) -> None:
        if self._conversation.plain:
            return
        self._conversation.send_control(self._stream, kind, number.to_bytes(8, "big"))


def _number(payload: bytes) -> int:
    if len(payload) != 8:
        raise RemoteProtocolError(f"a control message with a number of {len(payload)} bytes")
    return int.from_bytes(payload, "big")
