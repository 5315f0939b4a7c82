"""WebSocket (RFC 6455): a wire over another wire, and the handshake that begins it.

Payload
    The bytes of the conversation are the payload of binary messages.  The borders between messages have no
    meaning, so a stream protocol does not need to know about WebSocket (``MessageWire`` is for one to which
    they have).  Text messages are read as their UTF-8 bytes.  wsproto (extra ``web``) reads and writes the
    frames; it does no input or output, as our protocols.

Two queues of output
    A frame has to be written whole before the next one, and a frame that wsproto has made cannot be taken
    back.  So ``send`` takes buffers out of the caller's queue one frame at a time, and keeps the frame in
    ``_encoded`` until the inner wire has taken it.  What is left in the caller's queue is not in any frame
    yet.  Answers to pings go into ``_encoded`` directly: RFC 6455 allows control frames between the frames of
    messages.

Three kinds of end
    ==========================  ==========================================================================
    a close frame of the peer   is answered with a close frame; ``at_end`` is true after the last payload
    the inner wire ends         ``receive`` returns ``b""``: the protocol decides whether something is missing
    a fault of the peer         ``ConnectionAbortedError``, which the connection reports as a lost connection
    ==========================  ==========================================================================

    ``shut_down`` sends a close frame and does not shut down the socket, because the peer's answer to it is
    the end that ``closing_wire.py`` waits for.

Limits
    A message of the peer may come in any number of frames, of which each is passed on as it comes, so nothing
    is collected here.  ``web.max_message`` counts anyway, as the RFC provides (status 1009).  A peer that
    sends pings and does not read is disconnected at ``UNREAD_CONTROL_BYTES``.

Handshake
    It is HTTP: a request with the path, the subprotocols and, from a browser, the origin, and one answer.  It
    is written once for tasks and for threads (``waiting.py``).  A client may send its first frames together
    with its request, and a server with its answer; they are kept in ``_early``.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Iterator
from typing import Any

from kernel.contracts.durations import in_seconds
from kernel.contracts.errors import ConnectionLost
from kernel.contracts.message import Buffer
from kernel.hosting.address import Address
from kernel.hosting.waiting import TooSlow, Waits
from kernel.hosting.web_options import WebOptions
from kernel.hosting.wire import Wire

try:
    from wsproto import ConnectionType, WSConnection
    from wsproto.events import (
        AcceptConnection,
        BytesMessage,
        CloseConnection,
        Event,
        Ping,
        RejectConnection,
        RejectData,
        Request,
        TextMessage,
    )
    from wsproto.frame_protocol import CloseReason
    from wsproto.utilities import LocalProtocolError, RemoteProtocolError
except ImportError:
    raise ValueError("ws and wss addresses need wsproto: pip install 'messaging-kernel[web]'") from None

FRAME_BYTES = 256 * 1024
"""About how many bytes we put into one message."""

UNREAD_CONTROL_BYTES = 64 * 1024
"""Bytes of answers to pings that may wait for a peer which does not read."""

READ_BYTES = 16 * 1024

SIZE_BYTES = 8
"""Bytes of the size before each message of a ``MessageWire``."""


class WebSocketWire:
    """A wire after the WebSocket handshake.

    ``early``: events that came together with the handshake.  ``takes_text``: whether text messages are
    allowed, beside binary ones.  ``subprotocol``: what both have agreed on, if anything.  ``path``: for what
    a client has asked; empty for a client's own wire.
    """

    __slots__ = (
        "_at_end",
        "_begun",
        "_early",
        "_encoded",
        "_inner",
        "_max_message",
        "_message_size",
        "_takes_text",
        "_ws",
        "path",
        "subprotocol",
    )
    announces_end = True

    def __init__(
        self,
        inner: Wire,
        ws: WSConnection,
        max_message: int,
        early: list[Event],
        *,
        takes_text: bool = True,
        subprotocol: str | None = None,
        path: str = "",
    ) -> None:
        self.subprotocol: str | None = subprotocol
        self.path: str = path
        self._takes_text = takes_text
        self._inner = inner
        self._ws = ws
        self._max_message = max_message
        self._message_size = 0
        # Frames that the inner wire has not taken yet.
        self._encoded: deque[Buffer] = deque()
        # A buffer of which only a part was copied to a frame.  The slice that is left does not keep a view
        # that was lent (``drop_sent``).
        self._begun: Buffer | None = None
        self._at_end = False
        self._early = early

    @property
    def connected(self) -> socket.socket | None:
        """The socket of the inner wire."""
        return self._inner.connected

    @property
    def at_end(self) -> bool:
        """Whether the peer's close came together with the last bytes."""
        return self._at_end

    @property
    def has_early_data(self) -> bool:
        """Whether something came with the handshake, for which the descriptor does not become readable."""
        return bool(self._early)

    def fileno(self) -> int:
        """The descriptor to watch."""
        return self._inner.fileno()

    def receive(self, most: int) -> bytes | None:
        """Read about ``most`` bytes of frames; return their payload."""
        if self._early:
            events, self._early = self._early, []
            return self._payload(iter(events))
        data = self._inner.receive(most)
        if data is None:
            return None
        if not data:
            return b""
        try:
            self._ws.receive_data(data)
            payload = self._payload(self._ws.events())
        except (LocalProtocolError, RemoteProtocolError) as error:
            raise ConnectionAbortedError(f"WebSocket: {error}") from None
        # TLS has ended with these bytes, so there will be no further call for the end.
        if self._inner.at_end:
            self._at_end = True
            # With at_end set, None would mean that there is more to wait for.
            return payload or b""
        return payload

    def _payload(self, events: Iterator[Event]) -> bytes | None:
        """Answer pings and a close; return the payload, ``b""`` at the end, None if there is none yet."""
        fragments: list[bytes] = []
        for event in events:
            if isinstance(event, (BytesMessage, TextMessage)):
                if not self._takes_text and isinstance(event, TextMessage):
                    self._send_control(CloseConnection(CloseReason.UNSUPPORTED_DATA))
                    raise ConnectionAbortedError("WebSocket: a text message, where all are binary")
                fragment = event.data.encode() if isinstance(event, TextMessage) else bytes(event.data)
                self._message_size += len(fragment)
                if self._message_size > self._max_message:
                    self._send_control(CloseConnection(CloseReason.MESSAGE_TOO_BIG))
                    raise ConnectionAbortedError(
                        f"WebSocket: a message of more than {self._max_message} bytes (web.max_message)"
                    )
                # The limit is one of messages, which may consist of many events.
                if event.message_finished:
                    self._message_size = 0
                self._take(fragment, fragments, finished=event.message_finished)
            elif isinstance(event, Ping):
                self._send_control(event.response())
            # RFC 6455, section 5.5.1: a close is answered with a close, once.
            elif isinstance(event, CloseConnection) and not self._at_end:
                self._at_end = True
                self._answer_close(event)
        if fragments:
            return fragments[0] if len(fragments) == 1 else b"".join(fragments)
        return b"" if self._at_end else None

    def _take(self, fragment: bytes, fragments: list[bytes], *, finished: bool) -> None:
        """Append to ``fragments`` what is to be received; ``finished``: a message ends with this fragment."""
        # An empty message is allowed, but ``b""`` would be taken for the end.
        if fragment:
            fragments.append(fragment)

    def _answer_close(self, event: CloseConnection) -> None:
        """Answer the peer's close.

        If the peer has gone already, ignore that: what it sent before is still valid.
        """
        try:
            self._send_control(event.response())
        # wsproto refuses to answer the peer's answer to our own close.  OSError: the peer has gone.
        except (LocalProtocolError, OSError):
            pass

    def _send_control(self, event: Event) -> None:
        """Write a control frame now, or with what is sent next."""
        self._encoded.append(self._ws.send(event))
        if (
            # ``_encoded`` may also have one frame of messages, of about ``FRAME_BYTES``, which is not the
            # fault of pings.
            not self._inner.send(self._encoded)
            and sum(map(len, self._encoded)) > UNREAD_CONTROL_BYTES + FRAME_BYTES
        ):
            raise ConnectionAbortedError("WebSocket: the peer does not read the answers to its pings")

    def send(self, buffers: deque[Buffer]) -> bool:
        """Write as much as the inner wire takes; return whether everything was written.

        What was removed from ``buffers`` may still wait here, in a frame.
        """
        inner, encoded = self._inner, self._encoded
        # Everything older has to be written before the next frame is made.
        while inner.send(encoded):
            if not buffers:
                return True
            message = self._next_message(buffers)
            try:
                encoded.append(self._ws.send(BytesMessage(message)))
            # The peer has sent a close frame, and reads nothing after that.
            except LocalProtocolError as error:
                raise ConnectionAbortedError(f"WebSocket: {error}") from None
        return False

    def _next_message(self, buffers: deque[Buffer]) -> bytes:
        """Remove the payload of one message from ``buffers``."""
        fragments, size = [], 0
        while buffers and size < FRAME_BYTES:
            first = buffers[0]
            if len(first) > FRAME_BYTES:
                fragments.append(first[:FRAME_BYTES])
                if self._begun is None:
                    self._begun = first
                # A view: slicing bytes would copy the rest once for each frame.
                buffers[0] = memoryview(first)[FRAME_BYTES:]
                size += FRAME_BYTES
            else:
                fragments.append(buffers.popleft())
                size += len(first)
                self._begun = None
        return b"".join(fragments)

    def shut_down(self) -> None:
        """Send a close frame.  When the peer answers it, ``receive`` returns the end."""
        try:
            # 1000.  The inner wire stays open, so that the answer can arrive.
            self._send_control(CloseConnection(CloseReason.NORMAL_CLOSURE))
        except LocalProtocolError:
            # The peer has closed first and was answered, so the socket is the only thing left to shut down.
            self._inner.shut_down()

    def close(self) -> None:
        """Close the inner wire, without a close frame."""
        self._inner.close()
        self._encoded.clear()
        self._begun = None


class MessageWire(WebSocketWire):
    """A wire for a protocol that has one unit in each message of WebSocket.

    Each buffer that is sent is one message.  What is received has the size of each message, in eight
    bytes, before its payload.
    """

    __slots__ = ("_begin",)

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._begin: list[bytes] = []
        """What has come of a message; ``max_message`` limits it."""

    def _take(self, fragment: bytes, fragments: list[bytes], *, finished: bool) -> None:
        self._begin.append(fragment)
        if finished:
            message = b"".join(self._begin)
            self._begin = []
            fragments += (len(message).to_bytes(SIZE_BYTES, "big"), message)

    def _next_message(self, buffers: deque[Buffer]) -> bytes:
        return bytes(buffers.popleft())


class WebHandshake:
    """The HTTP request and its answer, for one side of one address.

    ``subprotocols``: the protocol's own names, which count if the options have none.  ``takes_text``: whether
    the protocol allows text messages.  ``keeps_messages``: whether it is one for ``MessageWire``.
    """

    def __init__(
        self,
        address: Address,
        options: WebOptions,
        *,
        server_side: bool,
        subprotocols: tuple[str, ...] = (),
        takes_text: bool = True,
        keeps_messages: bool = False,
    ) -> None:
        self._takes_text = takes_text
        self._kind = MessageWire if keeps_messages else WebSocketWire
        self._address = address
        self._options = options
        self._server_side = server_side
        self._subprotocols = options.subprotocols or subprotocols
        self._required = bool(options.subprotocols)
        """Whether the peer has to choose or offer one of them.

        Names of the options are the operator's wish.  A protocol's own name is not enforced, because many
        peers do without: RFC 6455, section 1.9, makes subprotocols optional.
        """
        self._at_path = {address.path: self}
        """For a server: itself, and those with which it shares a port, by path."""

    def share(self, other: WebHandshake) -> None:
        """Let clients that ask for the path of ``other`` shake hands with it."""
        self._at_path[other._address.path] = other

    async def shake(self, inner: Wire, seconds: float, waits: Waits) -> WebSocketWire:
        """Do the handshake on a wire, within ``seconds``.

        If it fails, the wire is closed: ``ConnectionLost``.
        """
        side = ConnectionType.SERVER if self._server_side else ConnectionType.CLIENT
        ws = WSConnection(side)
        asked, path = self, ""
        try:
            with waits.limit(seconds):
                if self._server_side:
                    asked, early, agreed = await self._serve(inner, ws, waits)
                    path = asked._address.path
                else:
                    early, agreed = await self._ask(inner, ws, waits)
        except TooSlow:
            inner.close()
            raise ConnectionLost(f"no WebSocket handshake within {in_seconds(seconds)}") from None
        except (OSError, LocalProtocolError, RemoteProtocolError) as error:
            inner.close()
            raise ConnectionLost(f"WebSocket handshake failed: {error}") from None
        except BaseException:
            inner.close()
            raise
        limit, text = asked._options.max_message, asked._takes_text
        return asked._kind(inner, ws, limit, early, takes_text=text, subprotocol=agreed, path=path)

    async def _ask(self, inner: Wire, ws: WSConnection, waits: Waits) -> tuple[list[Event], str | None]:
        address, offered = self._address, list(self._subprotocols)
        host = address.authority if address.host else f"localhost:{address.port}"
        await _write(inner, ws.send(Request(host=host, target=address.path, subprotocols=offered)), waits)
        events = await _events(inner, ws, waits)
        # What follows the answer in the same read are frames of the conversation.
        answer = events.pop(0)
        if isinstance(answer, (RejectConnection, RejectData)):
            status = f"status {answer.status_code}" if isinstance(answer, RejectConnection) else "an error"
            raise ConnectionResetError(f"the server answers with {status}")
        if not isinstance(answer, AcceptConnection):
            raise ConnectionResetError(f"the server answers with {type(answer).__name__}")
        # RFC 6455, section 4.1, lets a server choose none.  Our protocol would then be one that the server
        # has not agreed to.
        if self._required and answer.subprotocol is None:
            raise ConnectionResetError(f"the server speaks none of {', '.join(offered)}")
        return events, answer.subprotocol

    async def _serve(
        self, inner: Wire, ws: WSConnection, waits: Waits
    ) -> tuple[WebHandshake, list[Event], str | None]:
        """Answer a request; return whose path it asks for, what came with it, and the subprotocol."""
        try:
            events = await _events(inner, ws, waits)
        except RemoteProtocolError as error:
            # The request is not one for a WebSocket, such as that of a browser that was given the address.
            # wsproto has prepared an answer with the status, so that an HTTP client sees why.
            if isinstance(error.event_hint, RejectConnection):
                await _write(inner, ws.send(error.event_hint), waits)
            raise
        request = events.pop(0)
        if not isinstance(request, Request):
            raise ConnectionResetError(f"{type(request).__name__} instead of a request")
        path = request.target.partition("?")[0]
        asked = self._at_path.get(path, self)
        refusal, why = asked._judge(request, path)
        if refusal:
            await _write(inner, ws.send(RejectConnection(status_code=refusal)), waits)
            raise ConnectionResetError(why)
        # Our order decides, not that of the client.
        chosen = next((each for each in asked._subprotocols if each in request.subprotocols), None)
        await _write(inner, ws.send(AcceptConnection(subprotocol=chosen)), waits)
        # A client may send frames before it has our answer.
        return asked, events + list(ws.events()), chosen

    def _judge(self, request: Request, path: str) -> tuple[int, str]:
        """Return the HTTP status of a refusal (0: the request is accepted) and the reason."""
        options = self._options
        if path != self._address.path:
            here = " or ".join(map(repr, self._at_path))
            return 404, f"it asks for {path!r}, and {here} is here"
        # One that offers other names only would be answered without a name, and go on in its own protocol.
        judged = self._subprotocols if request.subprotocols or self._required else ()
        if judged and not set(judged) & set(request.subprotocols):
            return 400, f"it speaks none of {', '.join(judged)}"
        # Only browsers send it, and a page cannot forge it.  The check protects users of browsers from
        # foreign pages that use their access to this listener (RFC 6455, section 10.2).
        origin = dict(request.extra_headers).get(b"origin", b"").decode("latin-1")
        if origin and options.origins and origin not in options.origins:
            return 403, f"it comes from {origin}, which is none of web.origins"
        return 0, ""


async def _events(inner: Wire, ws: WSConnection, waits: Waits) -> list[Event]:
    """Read until there is at least one event; return all events of the last read."""
    while True:
        data = inner.receive(READ_BYTES)
        if data is None:
            await waits.readable(inner.fileno())
            continue
        if not data:
            raise ConnectionResetError("the peer has closed the connection")
        ws.receive_data(data)
        events = list(ws.events())
        if events:
            return events


async def _write(inner: Wire, data: bytes, waits: Waits) -> None:
    buffers: deque[Buffer] = deque([data])
    while not inner.send(buffers):
        await waits.writable(inner.fileno())
