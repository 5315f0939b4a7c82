"""HTTP connection: one client; h11 reads the requests and writes the heads of the answers.

One request at a time
    While a request is answered, and until the client has taken the answer, the connection is not read
    (``Pause.ANSWERING``).  So what a client can have waiting here is one answer and the bytes of one read,
    however many requests it sends at once (pipelining).  The requests are answered in their order.

Bodies
    Whoever answers is asked when the head of a request has come, and reads the body when it knows the user
    (``Whole``).  Until then nothing more is read, so that nobody fills memory without a login.  The body of a
    request that is answered without it is read as well, and dropped: the client would not see an answer to
    what it still sends.

Slow clients
    One deadline at a time: for a request from its first byte (or from the start of the connection) to its
    last, for the time between two requests, for taking an answer.  A client cannot put one off by sending or
    taking a byte now and then.

Answers that go on
    (``Answer.begin``)  A piece is written when the client has taken the one before, so at most one waits
    here.  The deadline is for taking it.  Such a connection is not read any more, and ends with its answer.
"""

from __future__ import annotations

from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus
from urllib.parse import parse_qsl, unquote, urlsplit

import h11

from kernel.contracts.engine import Host
from kernel.hosting.connection import Connection, ConnectionOwner, Pause
from kernel.hosting.read_size import SMALLEST_READ
from kernel.hosting.wire import Wire
from plugins.engines.web.answer import Answer, Request, Respond, Whole, error
from plugins.engines.web.options import WebEngineOptions

_ALWAYS = (
    # Figures of this moment, for one user.
    (b"cache-control", b"no-store"),
    # For browsers: a page of ours is what its type says.
    (b"x-content-type-options", b"nosniff"),
    # Names of queues in the address of a page are no affair of others.
    (b"referrer-policy", b"no-referrer"),
)

_MOST_FIELDS = 100
"""Fields of a query."""


class HttpConnection(ConnectionOwner):
    """Passive, as everything in an engine: called when there is input, room or a deadline."""

    def __init__(
        self,
        host: Host,
        wire: Wire,
        peer: str,
        limits: WebEngineOptions,
        *,
        loopback: bool,
        on_request: Callable[[Request, Respond, Whole], None],
        on_end: Callable[[HttpConnection], None],
    ) -> None:
        """``on_request`` gets each request, without its body, and calls ``Respond`` with the answer."""
        self.protocol_errors = 0
        """1 if the client has sent what is no HTTP, or more than it may."""
        self._host = host
        self._peer = peer
        self._limits = limits
        self._loopback = loopback
        self._on_request = on_request
        self._on_end = on_end
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.max_header_bytes)
        self._request: h11.Request | None = None
        """The request whose body is read, or that is answered."""
        self._asked: Request | None = None
        """The same, while its body is not read to its end."""
        self._whole: Callable[[Request], None] | None = None
        """Who wants the request with its body."""
        self._early: Answer | None = None
        """The answer of whoever does not want the body."""
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._received = False
        """Whether a byte of the next request has come."""
        self._answering = False
        """From the end of a request until its answer is written, and while more requests wait."""
        self._closing = False
        """Whether the connection ends when the answer is written."""
        self._hung_up = False
        """Whether the client has shut down its sending half while it waits for an answer."""
        self._on_gone: Callable[[], None] | None = None
        """While an answer goes on: what to call when the connection has ended."""
        self._deadline: float | None = host.now() + limits.request_seconds
        # ``answers_limit`` is not needed: nothing is read, so nothing is answered, while an answer waits.
        self._connection = Connection(host, wire, self, answers_limit=None)
        # The header limit is checked once a read, so a read must not be much larger than it.
        self._connection.largest_read = SMALLEST_READ

    def __repr__(self) -> str:
        return f"<HttpConnection {self._peer}>"

    @property
    def bytes_in(self) -> int:
        """Bytes read."""
        return self._connection.bytes_in

    @property
    def bytes_out(self) -> int:
        """Bytes of answers, written or not."""
        return self._connection.bytes_out

    @property
    def unwritten(self) -> int:
        """Bytes that the socket has not taken yet."""
        return self._connection.unwritten

    def start(self) -> None:
        """Begin to read."""
        self._connection.start()
        self._connection.arm(self._deadline)

    def close(self, reason: str) -> None:
        """End it; what was answered is written."""
        self._connection.close(reason)

    # What the connection calls

    def on_data(self, data: bytes, now: float) -> None:
        """The client has sent something."""
        if not self._received:
            self._received = True
            self._wait_until(now + self._limits.request_seconds)
        self._http.receive_data(data)
        self._process()

    def on_eof(self, now: float) -> None:
        """The client sends no more.  It gets the answer that it waits for."""
        if self._answering:
            self._hung_up = True
        else:
            self._connection.close("the client hung up")

    def on_written(self) -> None:
        """The socket has taken something."""
        if self._connection.writing:
            return
        if self._on_gone is None:
            self._answer_written()
        else:
            self._deadline = None

    def next_deadline(self) -> float | None:
        """Return when the client has to be done with what it does now."""
        return self._deadline

    def on_deadline(self, now: float) -> None:
        """The client is too slow."""
        self._deadline = None
        if self._answering:
            # Not ``close``: there is no sense in waiting until it takes the rest.
            self._connection.end("the client does not read its answer")
        elif self._received:
            self._refuse(408, "the request did not come in time")
        else:
            self._connection.close("no request for a long time")

    def on_ended(self, reason: str) -> None:
        """The connection is over."""
        self._deadline = None
        on_gone, self._on_gone = self._on_gone, None
        if on_gone is not None:
            on_gone()
        self._on_end(self)

    # Requests

    def _process(self) -> None:
        """Go through what was read, up to the end of one request."""
        try:
            while not self._answering and not self._connection.ended:
                event = self._http.next_event()
                if event is h11.NEED_DATA or event is h11.PAUSED:
                    return
                if self._take(event):
                    return
        except h11.RemoteProtocolError as fault:
            self._refuse(fault.error_status_hint, str(fault))

    def _take(self, event: object) -> bool:
        """Take one event of h11; return whether a request was answered, or is going to be."""
        if isinstance(event, h11.Request):
            self._request, self._body, self._body_bytes = event, [], 0
            if not _has_body(event):
                return False
            self._ask(event)
        elif isinstance(event, h11.Data):
            self._body_bytes += len(event.data)
            most = self._limits.max_body_bytes
            if self._body_bytes <= most:
                if self._early is None:
                    self._body.append(bytes(event.data))
                return False
            self._refuse(413, f"the body has more than {most} bytes")
        elif isinstance(event, h11.EndOfMessage):
            assert self._request is not None
            if self._asked is None:
                self._ask(self._request)
            else:
                self._end_body(self._asked)
        return True

    def _ask(self, asked: h11.Request) -> None:
        self._begin_answer()
        try:
            # An absolute URI is allowed as well (RFC 9112, section 3.2.2).
            target = urlsplit(asked.target.decode("ascii"))
            # Divided first and decoded then: a part may have a slash, as the virtual host ``/`` has
            # (``%2F``).
            parts = tuple(unquote(part) for part in target.path.strip("/").split("/"))
            query = dict(parse_qsl(target.query, keep_blank_values=True, max_num_fields=_MOST_FIELDS))
        except ValueError:
            self._answer(error(400, "Bad Request", "the target of the request is no path", close=True))
            return
        request = Request(
            asked.method.decode("ascii"),
            unquote(target.path),
            dict(asked.headers),
            self._peer,
            self._loopback,
            b"",
            parts,
            query,
        )
        if _has_body(asked):
            self._asked, self._whole, self._early = request, None, None
            self._on_request(request, self._answer_after_body, self._read_body)
        else:
            self._on_request(request, self._answer, lambda then: then(request))

    def _read_body(self, then: Callable[[Request], None]) -> None:
        """Call ``then`` with the request and its body."""
        # The client may have gone while its login was checked.
        if self._connection.ended:
            return
        self._whole = then
        # The client asks before it sends a body.
        if self._http.they_are_waiting_for_100_continue:
            go_on = h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")
            self._connection.send((self._http.send(go_on) or b"",))
        # In a later turn: this is called from within the loop of ``_process``, or from an answer of the
        # broker.
        self._host.soon(self._process_rest)

    def _answer_after_body(self, answer: Answer) -> None:
        # The body was read, or the client has not begun to send it and does not after this answer.
        if self._asked is None or self._http.they_are_waiting_for_100_continue:
            self._answer(answer)
        elif not self._connection.ended:
            # The body is read and dropped before the answer is sent (see above).
            self._early = answer
            self._host.soon(self._process_rest)

    def _end_body(self, asked: Request) -> None:
        self._begin_answer()
        body, self._body, self._asked = b"".join(self._body), [], None
        if self._early is not None:
            self._answer(self._early)
        elif self._whole is not None:
            self._whole(asked._replace(body=body))

    def _begin_answer(self) -> None:
        self._answering = True
        # Whoever makes the answer has time limits of its own.
        self._deadline = None
        self._connection.pause(Pause.ANSWERING)

    def _refuse(self, status: int, reason: str) -> None:
        """Answer what is no request, or none that we read to its end."""
        self.protocol_errors = 1
        self._begin_answer()
        self._answer(error(status, HTTPStatus(status).phrase, reason, close=True))

    # Answers

    def _answer(self, answer: Answer) -> None:
        # The client may have gone while the answer was made.
        if self._connection.ended:
            return
        # Not for HEAD: its answer is the head alone, and nothing would end the stream.
        goes_on = answer.begin is not None and self._request is not None and self._request.method == b"GET"
        # Where the request was not read to its end, h11 closes the connection as well.
        hung_up = self._hung_up and not self._http.trailing_data[0]
        self._closing = answer.close or hung_up or self._http.their_state is not h11.DONE or goes_on
        headers = [
            (b"date", formatdate(usegmt=True).encode()),
            (b"content-type", answer.content_type.encode()),
            *_ALWAYS,
            (b"content-security-policy", answer.policy.encode()),
            *((name.encode(), value.encode()) for name, value in answer.headers),
        ]
        if answer.begin is None:
            headers.append((b"content-length", str(sum(map(len, answer.body))).encode()))
        if self._closing:
            headers.append((b"connection", b"close"))
        reason = HTTPStatus(answer.status).phrase.encode()
        head = h11.Response(status_code=answer.status, headers=headers, reason=reason)
        data = [self._http.send(head) or b""]
        # HEAD: the headers of the answer to GET, with its length, and no body.
        if self._request is None or self._request.method != b"HEAD":
            # By reference: several answers may share a body of many pieces (``SharedAnswer``).
            for piece in answer.body:
                data += self._http.send_with_data_passthrough(h11.Data(data=piece)) or ()
        if goes_on:
            assert answer.begin is not None
            self._on_gone = answer.begin(self)
        else:
            self._http.send(h11.EndOfMessage())
        self._wait_until(self._host.now() + self._limits.send_seconds)
        self._connection.send(data)
        if not self._connection.ended:
            self.on_written()

    def write(self, piece: bytes) -> bool:
        """``Stream``: send a piece of an answer that goes on."""
        connection = self._connection
        # What cannot be sent now is dropped by whoever makes it: the next piece has newer figures.
        if connection.ended or connection.writing:
            return False
        connection.send(self._http.send_with_data_passthrough(h11.Data(data=piece)) or ())
        if connection.writing:
            self._wait_until(self._host.now() + self._limits.send_seconds)
        return True

    def end(self) -> None:
        """``Stream``: end an answer that goes on."""
        if not self._connection.ended:
            last = self._http.send(h11.EndOfMessage()) or b""
            self._connection.close("the answer has come to its end", (last,))

    def _answer_written(self) -> None:
        """The client has its answer: the next request, which may be here already."""
        if self._closing:
            self._connection.close("answered the last request")
            return
        self._request = self._asked = self._whole = self._early = None
        self._http.start_next_cycle()
        if self._http.trailing_data[0]:
            # In a later turn: the clients of other connections get theirs first.  Until then nothing more is
            # read, so that what waits here does not grow.
            self._deadline = None
            self._host.soon(self._process_rest)
        else:
            self._received = False
            self._wait_until(self._host.now() + self._limits.idle_seconds)
            self._read_on()

    def _process_rest(self) -> None:
        if self._connection.ended:
            return
        self._wait_until(self._host.now() + self._limits.request_seconds)
        self._answering = False
        self._process()
        if not self._answering and not self._connection.ended:
            self._read_on()

    def _read_on(self) -> None:
        self._answering = False
        if self._hung_up:
            self._connection.close("the client hung up")
        else:
            self._connection.resume(Pause.ANSWERING)

    def _wait_until(self, deadline: float) -> None:
        self._deadline = deadline
        self._connection.arm(deadline)


def _has_body(asked: h11.Request) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
        for name, value in asked.headers
    )
