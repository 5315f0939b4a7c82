"""Session: the conversation with the broker on one connection.

Login, subscriptions, heart-beats, both directions.

``Outgoing`` has what outlives a connection; a session has what does not.

Order
    CONNECT, CONNECTED; then one SUBSCRIBE after the other, each with a receipt, so that an ERROR frame
    without ``receipt-id`` has one possible cause; then messages.  So who publishes a request gets the answer:
    the subscription for it is there.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kernel.contracts.counts import counted
from kernel.contracts.message import Buffer
from plugins.engines.stomp_client.forms import Forms
from plugins.engines.stomp_client.options import SubscriptionOptions
from plugins.protocols.stomp.errors import CannotCarry, Fault
from plugins.protocols.stomp.frame_reader import FrameReader
from plugins.protocols.stomp.frames import HEART_BEAT, Frames, encode_frame
from plugins.protocols.stomp.heart_beats import HeartBeats, Offer
from plugins.protocols.stomp.limits import Limits
from plugins.protocols.stomp.versions import SERVER, Version

if TYPE_CHECKING:
    from plugins.engines.stomp_client.engine import StompClientEngine

_MOST_A_TURN = 10_000
"""Messages that are published in one turn, before other engines of the thread have theirs."""
_SUBSCRIBED = "subscribe-"
"""How the receipts of SUBSCRIBE frames begin.  Those of SEND frames are numbers."""
_LONGEST_REASON = 300
_FORCED = re.compile(r"\bconnection_forced\b|\bserver_initiated_close,320\b")
"""In an ERROR of a broker that ends, or whose operator ends the connection: in ours, and in RabbitMQ's.

320 is AMQP's number of ``connection-forced``.
"""


class Session:
    """The state of one connection."""

    def __init__(self, engine: StompClientEngine, now: float) -> None:
        self._engine = engine
        self._options = options = engine.options
        self._reader = FrameReader(Limits(body=options.max_body_bytes), of_server=True)
        self._version: Version | None = None
        """None: the broker has not accepted the connection."""
        self._beats = HeartBeats()
        self._each = True
        """Whether each message has a receipt of its own."""
        self.usable = False
        """Whether the broker has accepted the connection and answered the subscriptions."""
        self.ended = False
        self.finished = False
        """Whether the connection has to be closed when everything is written."""
        self.reason = ""
        """Why it has ended."""
        self.stops_reading = False
        """Whether the socket must not be read now."""
        self.written = None
        self.login_refused = False
        self.refusals = engine.refusals
        self.next_try: float | None = None
        """Seconds of the wait after which refused subscriptions are tried again; None: none is."""
        self._to_ask: deque[SubscriptionOptions] = deque()
        """Subscriptions to ask for; the first one is asked for if ``_asked`` is a receipt."""
        self._asked = ""
        self._number = 0
        self._out: list[Buffer] = []
        self._answer_until: float | None = now + options.connect_timeout
        """When the answer to CONNECT or SUBSCRIBE has to be there; None: none is due."""

    # What is said at the beginning

    def begin(self) -> None:
        """Send CONNECT."""
        options = self._options
        headers = [("accept-version", ",".join(sorted(options.versions))), ("host", options.host)]
        if options.login:
            headers += [("login", options.login), ("passcode", options.passcode)]
        headers.append(("heart-beat", str(self._offer())))
        # 1.0: headers of CONNECT have no escapes in any version (STOMP 1.2, Value Encoding).
        self._out.append(encode_frame("CONNECT", headers, Version.V1_0))

    def _offer(self) -> Offer:
        milliseconds = round(self._options.heartbeat * 1000)
        return Offer(milliseconds, milliseconds)

    def _connected(self, frames: Frames, now: float) -> None:
        headers = {name: value.strip(" ") for name, value in frames.headers.items()}
        # STOMP 1.0 has no header version.
        name = headers.get("version", "1.0")
        if name not in self._options.versions:
            offered = ", ".join(self._options.versions)
            self.end(
                f"{self._engine.peer} chooses STOMP {name[:80]}, and {offered} was offered: see versions"
            )
            return
        self._version = self._reader.version = Version(name)
        self._beats.start(self._offer(), Offer.of(headers.get("heart-beat")), now)
        # Of other brokers it is not known that a receipt is about the messages before it as well.
        ours = headers.get("server", "").partition("/")[0] == SERVER
        self._each = self._options.receipts == "each" or (self._options.receipts == "auto" and not ours)
        engine = self._engine
        engine.incoming.begin(self._version)
        self._answer_until = None
        self.subscribe(
            [each for each in self._options.subscriptions if each.identifier not in engine.refusals]
        )

    def subscribe(self, subscriptions: Iterable[SubscriptionOptions]) -> None:
        """Ask the broker for these subscriptions, one after the other."""
        self._to_ask.extend(subscriptions)
        self.next_try = None
        if not self._asked:
            self._ask()

    def _ask(self) -> None:
        if not self._to_ask:
            self._is_usable()
            return
        assert self._version is not None
        each = self._to_ask[0]
        self._number += 1
        self._asked = f"{_SUBSCRIBED}{self._number}"
        # STOMP 1.0 has ``client`` only, and ``Incoming`` acknowledges each message there.
        individual = each.ack == "client-individual" and self._version is not Version.V1_0
        headers = [
            ("id", each.identifier),
            ("destination", each.destination),
            ("ack", "client-individual" if individual else "client"),
            ("receipt", self._asked),
            *each.headers.items(),
        ]
        if each.prefetch:
            headers.append(("prefetch-count", str(each.prefetch)))
        if each.selector:
            headers.append(("selector", each.selector))
        self._answer_until = self._engine.host.now() + self._options.connect_timeout
        try:
            self._out.append(encode_frame("SUBSCRIBE", headers, self._version))
        except CannotCarry as error:
            self._subscription_refused(str(error))
            self._ask()

    def _subscribed(self) -> None:
        self._asked = ""
        self._answer_until = None
        self._engine.refusals.pop(self._to_ask.popleft().identifier, None)
        self._ask()

    def _is_usable(self) -> None:
        engine = self._engine
        if engine.refusals:
            left = [each for each in self._options.subscriptions if each.identifier in engine.refusals]
            self.next_try = engine.subscribe_later(tuple(left))
        else:
            engine.all_subscribed()
        if not self.usable:
            assert self._version is not None
            self.usable = True
            engine.outgoing.begin(Forms(self._options, self._version), engine.host.now(), each=self._each)
            engine.is_usable()

    def _subscription_refused(self, text: str) -> None:
        each = self._to_ask.popleft()
        self._asked = ""
        self._answer_until = None
        engine = self._engine
        engine.counters.refusals += 1
        # Left out on the next connection: otherwise it would end that one as well, and nothing else would get
        # through.
        engine.refusals[each.identifier] = f"subscribing to {each.destination!r}: {text}"
        engine.report("refused", engine.refusals[each.identifier])

    # What the broker sends

    def receive(self, data: bytes, now: float) -> None:
        """Process what the broker has sent."""
        self._beats.received(now)
        reader = self._reader
        reader.feed(data)
        try:
            while not self.ended and (found := reader.read()):
                for frames in found:
                    self._handle(frames, now)
                    if self.ended:
                        return
        except Fault as fault:
            self.end(f"{self._engine.peer} has sent what STOMP does not allow: {fault}")

    def _handle(self, frames: Frames, now: float) -> None:
        command = frames.command
        # The frequent frames come first.
        if command == "MESSAGE" and self._version is not None:
            self._engine.incoming.message(frames)
        elif command == "RECEIPT" and self._version is not None:
            self._receipts([receipt for _, receipt in frames.receipts], now)
        elif command == "ERROR":
            self._error(frames)
        elif command == "CONNECTED" and self._version is None:
            self._connected(frames, now)
        else:
            raise Fault("Bad command", f"{command[:80]!r} is not expected here")

    def _receipts(self, receipts: list[str], now: float) -> None:
        numbers = [number for text in receipts if (number := _number_of(text)) is not None]
        if numbers:
            self._engine.outgoing.received(numbers, now)
        if self._asked and self._asked in receipts:
            self._subscribed()

    def _error(self, frames: Frames) -> None:
        engine = self._engine
        engine.counters.errors += 1
        said = frames.headers.get("message", "no reason")
        body = " ".join(b"".join(frames.bodies).decode(errors="replace").split())
        # Some brokers repeat the header in the body.
        text = (body if body.startswith(said) else f"{said} {body}".rstrip())[:_LONGEST_REASON]
        if self._version is None:
            self.login_refused = True
            advice = f"check login {self._options.login!r}, passcode and host {self._options.host!r}"
            self.end(f"{engine.peer} refuses the connection: {text}; {advice}")
            return
        receipt = frames.headers.get("receipt-id")
        # No message and no subscription is at fault if the broker just ends.  Otherwise a message that was
        # alone in flight when it ended twice would be refused, and lost.
        if receipt is not None or not _FORCED.search(text):
            # Nothing else can be the cause of an ERROR without a receipt: nothing is published while a
            # SUBSCRIBE is unanswered.
            if self._asked and receipt in (None, self._asked):
                self._subscription_refused(text)
            else:
                engine.outgoing.failed(_number_of(receipt or ""), f"ERROR: {text}")
        # A server closes the connection after an ERROR frame (STOMP 1.2, ERROR).  For one that does not,
        # nobody knows what it did with the frames behind the one that it complains of.
        self.end(f"{engine.peer} ends the connection: ERROR: {text}")

    @property
    def in_flight(self) -> int:
        """Messages that were sent and that the broker has to confirm."""
        return self._engine.outgoing.in_flight

    # Turns

    def take_output(self, *, publish: bool) -> tuple[list[Buffer], bool]:
        """Return what has to be sent, and whether more can be published.

        ``publish``: whether the socket has room for messages.
        """
        engine = self._engine
        out, self._out = self._out, []
        more = False
        if self._version is not None and not self.ended:
            engine.incoming.flush()
            out += engine.incoming.take_answers()
            # Not while a SUBSCRIBE is unanswered: an ERROR frame should have one possible cause.
            if self.usable and publish and not self._asked:
                frames, more = engine.outgoing.pump(_MOST_A_TURN, engine.host.now())
                out += frames
        self.finished = self.ended
        self.stops_reading = engine.incoming.stops_reading
        return out, more

    # Time

    def next_deadline(self) -> float | None:
        """Return when something is due: an answer, a heart-beat or that of the broker, a receipt."""
        due = [self._answer_until, self._beats.next_deadline()]
        if self._engine.outgoing.in_flight:
            due.append(self._engine.outgoing.answered_at + self._options.confirm_timeout)
        return min((each for each in due if each is not None), default=None)

    def on_deadline(self, now: float) -> None:
        """Send a heart-beat, or give up the broker."""
        peer, options, outgoing = self._engine.peer, self._options, self._engine.outgoing
        if self._answer_until is not None and now >= self._answer_until:
            what = "CONNECT"
            if self._version is not None:
                what = f"SUBSCRIBE to {self._to_ask[0].destination!r}"
            self.end(f"{peer} has not answered {what} within {options.connect_timeout:g} s")
        elif self._beats.peer_is_silent(now):
            self.end(f"{peer} has sent no heart-beat")
        elif outgoing.in_flight and now >= outgoing.answered_at + options.confirm_timeout:
            self.end(
                f"{peer} has sent a receipt for none of {counted(outgoing.in_flight, 'message')} within "
                f"{options.confirm_timeout:g} s"
            )
        elif self._beats.due(now, self._engine.counters.bytes_out):
            self._out.append(HEART_BEAT)

    def is_not_read(self, now: float) -> None:
        """The socket was not read: the silence of the broker says nothing."""
        self._beats.received(now)
        # Receipts may be in the socket, unread. Their limit begins anew.
        self._engine.outgoing.answered_at = now

    # The end

    def last_words(self) -> list[Buffer]:
        """Return what is still to be sent, and DISCONNECT: the broker then knows that this side is going."""
        out, self._out = self._out, []
        if self._version is not None:
            out += self._engine.incoming.take_answers()
            out.append(encode_frame("DISCONNECT", (), self._version))
        return out

    def end(self, reason: str) -> None:
        """The connection has ended, or has to."""
        if not self.ended:
            self.ended = True
            self.reason = reason


def _number_of(receipt: str) -> int | None:
    """Return the number of the message whose receipt this is; None: it is no receipt of a message."""
    # ``isascii``: there are digits of other scripts.
    return int(receipt) if receipt.isascii() and receipt.isdigit() and len(receipt) <= 18 else None
