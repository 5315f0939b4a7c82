"""The server's side of one NATS connection.  Sans-I/O: no socket, no clock, only bytes in and bytes out.

https://docs.nats.io/reference/reference-protocols/nats-protocol describes the commands.  NATS core confirms
nothing: a message that was written to the wire counts as delivered.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from kernel.contracts.errors import LocalProtocolError, RemoteProtocolError
from kernel.contracts.message import Batch, Buffer, Envelope, batch_of
from kernel.contracts.protocol import ConnectionFacts, Login, Refusal
from kernel_nats import headers
from kernel_nats.interests import Interests
from kernel_nats.options import NatsOptions
from kernel_nats.reader import CommandReader, Fault, number
from kernel_nats.subjects import is_subject

VERSION = "2.2.0"
"""The version of the NATS server that has the same commands: the first with headers and "no responders"."""
LARGE = 16_384
"""Bytes from which a body is handed to the socket as it is, not copied together with its neighbours."""
REMEMBERED = 1024
"""Envelopes that are kept by their subjects."""


class Connect(msgspec.Struct, kw_only=True):
    """The argument of CONNECT, as far as it matters here."""

    verbose: bool = False
    echo: bool = True
    headers: bool = False
    no_responders: bool = False
    user: str = ""
    password: str = msgspec.field(default="", name="pass")
    auth_token: str = ""


class NatsConnection:
    """``kernel.contracts.protocol.StreamProtocol`` for NATS.

    Also ``Told`` (INFO has addresses), ``UpgradesToTls``, ``Authenticating``, ``Named`` (for ``echo``),
    ``Answering`` ("no responders"), ``ToldOfSubscriptions`` (for PONG) and ``Refusing`` (keys that are no
    subjects).
    """

    peer_name = ""

    def __init__(self, options: NatsOptions) -> None:
        self._options = options
        self._reader = CommandReader(options)
        self._interests = Interests()
        self.subscriptions: list[tuple[str, str]] = self._interests.asked
        self.refused: list[Refusal] = []
        self.peer_options: Mapping[str, Any] = {}
        self._connect: Connect | None = None
        self._login: Login | None = None
        self._deciding = False
        self._tls = options.tls
        self._closed = False
        self._out: list[Buffer] = []
        self._given = 0
        self._envelopes: dict[tuple[bytes, ...], Envelope] = {}
        self._login_due: float | None = None
        self._ping_due: float | None = None
        self._pings = 0
        self._now = 0.0
        self._pongs = 0
        """PINGs that are answered once the subscriptions before them are in effect."""
        self._subscribe_due: float | None = None
        """Until when they may take; None: all are in effect."""
        self._commands: dict[bytes, Callable[[list[bytes]], Any]] = {
            b"SUB": self._on_sub,
            b"UNSUB": self._on_unsub,
            b"PING": self._on_ping,
            b"PONG": self._on_pong,
            b"CONNECT": self._on_connect,
        }

    # ------------------------------------------------------------------ the beginning

    def on_connection(self, facts: ConnectionFacts) -> None:
        """Greet the client."""
        if facts.encrypted:
            self._tls = False  # it has begun before
        client_id = facts.shared["clients"] = facts.shared.get("clients", 0) + 1
        host, _, port = facts.local.rpartition(":")
        info = {
            "server_id": f"{facts.seed:032X}",
            "server_name": "kernel",
            "version": VERSION,
            "proto": 1,
            "host": host,
            "port": int(port) if port.isdigit() else 0,
            "headers": True,
            "max_payload": self._options.max_payload,
            "client_id": client_id,
            "client_ip": facts.peer.rpartition(":")[0],
        }
        if self._options.login_required:
            info["auth_required"] = True
        if self._tls:
            info["tls_required"] = True
        self._out.append(b"INFO " + msgspec.json.encode(info) + b"\r\n")

    def wants_tls(self) -> bool:
        """Right behind INFO."""
        return self._tls

    def tls_started(self, facts: ConnectionFacts, now: float) -> None:
        """CONNECT will come over TLS."""
        self._tls = False

    def login(self) -> Login | None:
        """Return what CONNECT had, once, if another engine decides."""
        login, self._login = self._login, None
        return login

    def decide(self, reason: str | None, now: float) -> None:
        """The other engine has decided."""
        self._deciding = False
        if reason is None:
            self._login_due = None
        else:
            self._out.clear()  # answers to what came behind the CONNECT
            self._out.append(_error("Authorization Violation"))
            self._closed = True

    def _on_connect(self, arguments: list[bytes]) -> None:
        if self._connect is not None or not arguments:
            raise Fault("Parser Error")
        try:
            connect = msgspec.json.decode(arguments[0], type=Connect)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise Fault("Parser Error") from None
        options = self._options
        if options.authenticate:
            mechanism = "TOKEN" if connect.auth_token else "PLAIN" if connect.user else "ANONYMOUS"
            secret = (connect.auth_token or connect.password).encode()
            self._login = Login(mechanism=mechanism, user=connect.user, secret=secret)
            self._deciding = True
        elif options.login_required and not self._is_known(connect):
            raise Fault("Authorization Violation")
        else:
            self._login_due = None
        self._connect = connect
        if not connect.echo:
            self.peer_options = {"echo": False}
        self._acknowledge()

    def _is_known(self, connect: Connect) -> bool:
        options = self._options
        if connect.auth_token:
            return bool(options.token) and _same(connect.auth_token, options.token)
        return connect.user in options.users and _same(connect.password, options.users[connect.user])

    # ------------------------------------------------------------------ receiving

    def receive_data(self, data: Buffer, now: float) -> list[Batch]:
        """Take bytes; return what the client has published."""
        if self._tls and data:
            raise RemoteProtocolError("bytes in the clear where TLS begins")
        self._pings = 0
        self._now = now
        self._ping_due = now + self._options.ping_interval
        batches: list[Batch] = []
        envelope: Envelope | None = None
        bodies: list[bytes] = []
        try:
            for name, arguments, payload in self._reader.feed(bytes(data)):
                if name in (b"PUB", b"HPUB"):
                    following, body = self._published(name, arguments, payload)
                    if following is not envelope:
                        if envelope is not None:
                            batches.append(batch_of(bodies, envelope))
                        envelope, bodies = following, []
                    bodies.append(body)
                else:
                    self._obey(name, arguments)
        except Fault as fault:
            if envelope is not None:
                batches.append(batch_of(bodies, envelope))
            self._refuse(str(fault), batches)
        if envelope is not None:
            batches.append(batch_of(bodies, envelope))
        return batches

    def receive_eof(self, now: float) -> None:
        """The client has hung up."""
        self._closed = True
        if self._reader:
            raise RemoteProtocolError("the client hung up in the middle of a command")

    def _published(self, name: bytes, arguments: list[bytes], payload: bytes) -> tuple[Envelope, bytes]:
        """Return the envelope and the body of a PUB or HPUB."""
        if self._connect is None:
            raise Fault("Authorization Violation" if self._options.login_required else "Parser Error")
        block = b""
        if name == b"HPUB":
            if len(arguments) < 3:
                raise Fault("Parser Error")
            end = number(arguments.pop(-2))
            if end > len(payload):
                raise Fault("Parser Error")
            block, payload = payload[:end], payload[end:]
        if not 2 <= len(arguments) <= 3:
            raise Fault("Parser Error")
        self._acknowledge()
        known = (*arguments[:-1], block) if block else tuple(arguments[:-1])
        envelope = self._envelopes.get(known)
        if envelope is None:
            envelope = _envelope(arguments[:-1], block)
            if len(self._envelopes) >= REMEMBERED:
                self._envelopes.clear()
            self._envelopes[known] = envelope
        return envelope, payload

    def _obey(self, name: bytes, arguments: list[bytes]) -> None:
        """Do what a command without a payload says."""
        command = self._commands.get(name)
        if command is None:
            raise Fault("Unknown Protocol Operation")
        command(arguments)

    def _on_sub(self, arguments: list[bytes]) -> None:
        words = self._words(arguments, 2, 3)
        group = _text(words[1]) if len(words) == 3 else ""
        try:
            self._interests.subscribe(words[-1], _text(words[0]), group)
        except ValueError:
            self._out.append(_error("Invalid Subject"))
        else:
            if self.subscriptions:
                self._subscribe_due = self._now + self._options.subscribe_timeout
            self._acknowledge()

    def _on_unsub(self, arguments: list[bytes]) -> None:
        words = self._words(arguments, 1, 2)
        limit = number(words[1]) if len(words) == 2 else 0
        self._interests.unsubscribe(words[0], limit or None)
        self._acknowledge()

    def _on_ping(self, _: list[bytes]) -> None:
        """Answer, but behind the subscriptions: clients take PONG as the sign that these are in effect."""
        self._pongs += 1
        if self._subscribe_due is None:
            self._answer_pings()

    def subscribed(self, now: float) -> None:
        """What the client has subscribed to is in effect."""
        self._answer_pings()

    def _answer_pings(self) -> None:
        self._subscribe_due = None
        self._out += [b"PONG\r\n"] * self._pongs
        self._pongs = 0

    def _on_pong(self, _: list[bytes]) -> None:
        """Any input counts as a sign of life."""

    def _words(self, arguments: list[bytes], least: int, most: int) -> list[bytes]:
        """Return the arguments of a command that is for clients that have sent CONNECT."""
        if self._connect is None and self._options.login_required:
            raise Fault("Authorization Violation")
        words = arguments[0].split() if arguments else []
        if self._connect is None or not least <= len(words) <= most:
            raise Fault("Parser Error")
        return words

    def _acknowledge(self) -> None:
        if self._connect is not None and self._connect.verbose:
            self._out.append(b"+OK\r\n")

    def _refuse(self, reason: str, batches: Sequence[Batch] = ()) -> None:
        """Tell the client what was wrong, and end."""
        self._deciding = False
        self._out.append(_error(reason))
        self._closed = True
        raise RemoteProtocolError(reason, list(batches))

    # ------------------------------------------------------------------ sending

    def send_batches(self, batches: Sequence[Batch], now: float) -> None:
        """Queue batches, for each subscription that they match."""
        if self._closed:
            raise LocalProtocolError("the connection is over")
        for batch in batches:
            first = self._given + 1
            self._given += len(batch)
            envelope = batch.envelope
            if not is_subject(envelope.key):
                reason = f"key {envelope.key!r} is no subject of NATS"
                self.refused += [Refusal(each, reason) for each in range(first, self._given + 1)]
                continue
            block = b""
            if self._connect is not None and self._connect.headers and envelope.properties:
                block = headers.encode(envelope.properties.get("headers") or {})
            for sid, part in self._interests.of(batch):
                self._write(sid, part, block)

    def unrouted(self, batches: Sequence[Batch], now: float) -> None:
        """Nobody has subscribed to these: a client that waits for an answer is told so."""
        connect = self._connect
        if connect is None or not (connect.no_responders and connect.headers):
            return
        for batch in batches:
            if batch.envelope.reply_to:
                answer = batch_of([b""] * len(batch), Envelope(key=batch.envelope.reply_to))
                for sid, part in self._interests.of(answer):
                    self._write(sid, part, headers.NO_RESPONDERS)

    def _write(self, sid: bytes, batch: Batch, block: bytes) -> None:
        """Queue MSG, or HMSG if there is a block of headers."""
        envelope = batch.envelope
        head = b"%b %b %b " % (b"HMSG" if block else b"MSG", envelope.key.encode(), sid)
        if is_subject(envelope.reply_to):
            head += envelope.reply_to.encode() + b" "
        if block:
            head += b"%d " % len(block)
        extra = len(block)
        bodies = [b"".join(parts) for parts in batch.bodies] if batch.multipart else batch.bodies
        pieces: list[Buffer] = []
        for body in bodies:
            pieces += (b"%b%d\r\n%b" % (head, len(body) + extra, block), body, b"\r\n")
        if batch.size > LARGE * len(bodies):
            self._out += pieces
        else:
            self._out.append(b"".join(pieces))

    def data_to_send(self) -> list[Buffer]:
        """Return and forget what is to be written; nothing while another engine decides on the login."""
        if self._deciding:
            return []
        out, self._out = self._out, []
        return out

    def ready_to_send(self) -> bool:
        """Once the client is let in."""
        return self._connect is not None and not self._deciding and not self._closed

    # ------------------------------------------------------------------ time

    def next_deadline(self) -> float | None:
        """When the login or a sign of life is due."""
        if self._closed:
            return None
        if self._pongs and self._subscribe_due is not None:
            return self._subscribe_due
        return self._ping_due if self._login_due is None else self._login_due

    def handle_timeout(self, now: float) -> None:
        """Look whether the client is alive, and whether it has logged in."""
        if self._ping_due is None:  # the beginning
            self._ping_due = now + self._options.ping_interval
            if self._options.login_required:
                self._login_due = now + self._options.login_timeout
        elif self._pongs and self._subscribe_due is not None and now >= self._subscribe_due:
            self._answer_pings()
        elif self._login_due is not None and now >= self._login_due:
            self._refuse("Authentication Timeout")
        elif now >= self._ping_due:
            if self._pings >= self._options.max_pings:
                self._refuse("Stale Connection")
            self._pings += 1
            self._ping_due = now + self._options.ping_interval
            self._out.append(b"PING\r\n")

    # ------------------------------------------------------------------ not in NATS core, and the end

    def confirm(self, count: int) -> None:
        """The client is not told."""

    def want_confirm(self) -> None:
        """The client cannot be asked."""

    def confirmed(self) -> int | None:
        """What was written counts as confirmed."""
        return None

    def close(self, reason: str, now: float) -> None:
        """There is nothing to say."""
        self._closed = True

    def closed(self) -> bool:
        """Whether the conversation is over."""
        return self._closed


def _envelope(subjects: list[bytes], block: bytes) -> Envelope:
    """Return the envelope of a message; ``subjects`` are its own and perhaps that of the reply."""
    key, reply_to = _text(subjects[0]), _text(subjects[1]) if len(subjects) > 1 else ""
    if not is_subject(key):
        raise Fault("Invalid Publish Subject")
    if not block:
        return Envelope(key=key, reply_to=reply_to)
    try:
        properties = {"headers": headers.decode(block)}
    except ValueError:
        raise Fault("Parser Error") from None
    return Envelope(key=key, reply_to=reply_to, properties=properties)


def _text(octets: bytes) -> str:
    try:
        return octets.decode()
    except UnicodeDecodeError:
        raise Fault("Parser Error") from None


def _same(one: str, other: str) -> bool:
    """Compare secrets in a time that does not tell how much of them agrees."""
    return hmac.compare_digest(one.encode(), other.encode())


def _error(reason: str) -> bytes:
    return b"-ERR '%b'\r\n" % reason.encode()
