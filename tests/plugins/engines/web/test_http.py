"""One client of the web engine, on a simulated host: limits, slow clients, pipelining, HEAD, and what is no HTTP."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from kernel.testing.memory_wire import SimulatedHost
from tests.peers import optional

pytestmark = pytest.mark.peer("prometheus-client")

if optional("h11") is not None:
    import h11

    from plugins.engines.web.answer import Answer, Request, Respond, Stream, Whole, json_answer
    from plugins.engines.web.http_connection import HttpConnection
    from plugins.engines.web.options import WebEngineOptions

BODY = b"x" * 1000
GET = b"GET /%d HTTP/1.1\r\nhost: localhost\r\n\r\n"


class Client:
    """A client of a connection that answers with the path, at once or when the test says so."""

    def __init__(
        self, capacity: int = 1 << 20, at_once: bool = True, reads_bodies: bool = False, **options: Any
    ) -> None:
        self.host = SimulatedHost()
        wire, self.wire = self.host.wire(capacity=capacity)
        self.asked: list[Request] = []
        self.waiting: deque[Respond] = deque()
        self.wholes: deque[Whole] = deque()
        self.read: list[Request] = []
        """Requests with their bodies."""
        self._reads_bodies = reads_bodies
        self.ended = 0
        self._at_once = at_once
        self._http = h11.Connection(h11.CLIENT)
        self.connection = HttpConnection(
            self.host,
            wire,
            "client",
            WebEngineOptions(**options),
            loopback=True,
            on_request=self._on_request,
            on_end=self._on_end,
        )
        self.connection.start()

    def _on_request(self, request: Request, respond: Respond, whole: Whole) -> None:
        self.asked.append(request)
        if self._reads_bodies:
            whole(self.read.append)
            self.waiting.append(respond)
        elif self._at_once:
            respond(json_answer(200, request.path))
        else:
            self.waiting.append(respond)
            self.wholes.append(whole)

    def _on_end(self, connection: HttpConnection) -> None:
        self.ended += 1

    def sends(self, data: bytes) -> None:
        """The client writes, and both work until nothing is left to do now."""
        assert self.wire.send(deque([data]))
        self.host.run()

    def later(self, seconds: float) -> None:
        self.host.run(self.host.now() + seconds)

    def reads(self) -> bytes:
        """Everything that has come so far."""
        got = b""
        self.host.run()
        while data := self.wire.receive(1 << 20):
            got += data
            self.host.run()
        return got

    def answers(self, *methods: str) -> list[tuple[int, Any]]:
        """Status and JSON of each answer to requests by these methods; all of the output has to be answers."""
        data, found = self.reads(), []
        for method in methods:
            http = h11.Connection(h11.CLIENT)
            http.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
            http.send(h11.EndOfMessage())
            http.receive_data(data)
            status, body = 0, b""
            while not isinstance(event := http.next_event(), h11.EndOfMessage):
                assert event is not h11.NEED_DATA, data
                if isinstance(event, h11.Response):
                    status = event.status_code
                elif isinstance(event, h11.Data):
                    body += event.data
            data = http.trailing_data[0]
            found.append((status, json.loads(body) if body else None))
        assert data == b""
        return found


def test_a_request_is_answered_and_the_connection_stays() -> None:
    client = Client()
    client.sends(GET % 1)
    assert client.answers("GET") == [(200, "/1")]
    client.sends(GET % 2)
    assert client.answers("GET") == [(200, "/2")]
    assert client.ended < 1


def test_a_request_may_come_byte_by_byte() -> None:
    client = Client()
    for byte in GET % 1:
        client.sends(bytes([byte]))
    assert client.answers("GET") == [(200, "/1")]


def test_pipelined_requests_are_answered_in_order_one_after_the_other() -> None:
    client = Client(at_once=False)
    client.sends(b"".join(GET % number for number in range(300)))
    for number in range(300):
        assert len(client.waiting) == 1, "the next one waits for the answer to this one"
        client.waiting.popleft()(json_answer(200, number))
        client.host.run()
    assert client.answers(*["GET"] * 300) == [(200, number) for number in range(300)]


def test_what_a_client_sends_while_it_waits_is_not_read() -> None:
    client = Client(at_once=False)
    client.sends((GET % 1) * 1000)
    assert client.connection.bytes_in <= 4096
    assert len(client.asked) == 1


def test_head_has_the_headers_of_get_and_no_body() -> None:
    client = Client()
    client.sends(b"HEAD /1 HTTP/1.1\r\nhost: localhost\r\n\r\n" + GET % 2)
    data = client.reads()
    assert data.count(b"\r\ncontent-length: 5\r\n") == 2
    assert data.count(b'"/1"') == 0
    assert data.count(b'"/2"') == 1


def test_the_path_of_an_absolute_uri_counts_without_its_query() -> None:
    client = Client()
    client.sends(b"GET http://localhost/a%20b?c=d HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert client.answers("GET") == [(200, "/a b")]


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_the_connection_ends_when_the_client_wants_it(version: str) -> None:
    client = Client()
    client.sends(f"GET /1 HTTP/{version}\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())
    assert b"\r\nconnection: close\r\n" in client.reads().lower()
    assert client.ended == 1


def test_a_client_that_stops_sending_gets_the_answer_that_it_waits_for() -> None:
    client = Client(at_once=False)
    client.sends(GET % 1)
    client.wire.shut_down()
    client.host.run()
    client.waiting.popleft()(json_answer(200, "late"))
    assert client.answers("GET") == [(200, "late")]
    client.host.run()
    assert client.ended == 1


def test_an_answer_for_a_client_that_has_gone_is_dropped() -> None:
    client = Client(at_once=False)
    client.sends(GET % 1)
    client.connection.close("the engine ends")
    client.waiting.popleft()(json_answer(200, "late"))
    assert client.reads() == b""
    assert client.ended == 1


# Limits


@pytest.mark.parametrize("end", [b"", b"\r\n\r\n"], ids=["endless", "complete"])
def test_headers_beyond_the_limit_are_refused(end: bytes) -> None:
    client = Client(max_header_bytes=1024)
    client.sends(b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 20_000 + end)
    [(status, content)] = client.answers("GET")
    assert status == 431
    assert content["error"] == "Request Header Fields Too Large"
    assert client.ended == 1
    assert client.connection.protocol_errors == 1
    assert not client.asked


def test_a_body_is_dropped() -> None:
    client = Client(max_body_bytes=1000)
    client.sends(b"GET /1 HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n" + BODY + GET % 2)
    assert client.answers("GET", "GET") == [(200, "/1"), (200, "/2")]


@pytest.mark.parametrize(
    "head,body",
    [
        (b"content-length: 1001", BODY + b"x"),
        (b"transfer-encoding: chunked", b"3e8\r\n" + BODY + b"\r\n1\r\nx\r\n"),
    ],
    ids=["length", "chunked"],
)
def test_a_body_beyond_the_limit_is_refused(head: bytes, body: bytes) -> None:
    client = Client(max_body_bytes=1000)
    client.sends(b"GET /1 HTTP/1.1\r\nhost: localhost\r\n" + head + b"\r\n\r\n" + body)
    [(status, _)] = client.answers("GET")
    assert status == 413
    assert client.ended == 1
    assert not client.read


def put(length: int, *headers: bytes) -> bytes:
    return b"".join(
        [b"PUT /1 HTTP/1.1\r\nhost: localhost\r\n", *headers, b"content-length: %d\r\n\r\n" % length]
    )


ASKS_FIRST = b"expect: 100-continue\r\n"


def test_a_client_that_asks_before_it_sends_a_body_is_told_to_go_on() -> None:
    client = Client(reads_bodies=True)
    client.sends(put(10, ASKS_FIRST))
    assert client.reads() == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.sends(b"0123456789")
    client.waiting.popleft()(json_answer(200, "done"))
    assert client.answers("PUT") == [(200, "done")]
    assert [request.body for request in client.read] == [b"0123456789"]


def test_a_client_that_asks_first_and_is_refused_sends_no_body() -> None:
    client = Client(at_once=False)
    client.sends(put(10, ASKS_FIRST))
    client.waiting.popleft()(json_answer(401, "no"))
    assert client.answers("PUT") == [(401, "no")]
    assert client.ended == 1


def test_a_body_is_not_read_before_somebody_wants_it() -> None:
    """Its login is checked first: otherwise anybody could fill memory."""
    client = Client(at_once=False, max_body_bytes=1 << 20)
    client.sends(put(1 << 20))
    for _ in range(8):
        client.sends(b"x" * (1 << 17))
    assert client.connection.bytes_in < 1 << 17
    client.wholes.popleft()(client.read.append)
    client.host.run()
    assert [len(request.body) for request in client.read] == [1 << 20]
    client.waiting.popleft()(json_answer(200, "done"))
    assert client.answers("PUT") == [(200, "done")]


def test_a_body_that_nobody_wants_is_dropped_before_the_answer() -> None:
    """The client may read nothing before it has sent everything."""
    client = Client(at_once=False)
    client.sends(put(1000) + BODY[:500])
    client.waiting.popleft()(json_answer(401, "no"))
    assert client.reads() == b""
    client.sends(BODY[500:] + GET % 2)
    client.waiting.popleft()(json_answer(200, "next"))
    assert client.answers("PUT", "GET") == [(401, "no"), (200, "next")]


def test_a_client_that_goes_while_its_login_is_checked_is_forgotten() -> None:
    client = Client(at_once=False)
    client.sends(put(10))
    client.connection.close("the engine ends")
    client.wholes.popleft()(client.read.append)
    client.waiting.popleft()(json_answer(401, "no"))
    client.host.run()
    assert (client.read, client.ended) == ([], 1)


@pytest.mark.parametrize(
    "request_",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"AMQP\x00\x00\x09\x01\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\n x: folded: \r\nb\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\nhost: a\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused_and_the_connection_closed(request_: bytes) -> None:
    client = Client()
    client.sends(request_)
    [(status, content)] = client.answers("GET")
    assert status == 400
    assert content["error"] == "Bad Request"
    assert client.ended == 1
    assert not client.asked


# Slow clients


def test_a_request_that_comes_too_slowly_is_refused() -> None:
    client = Client(request_seconds=10.0)
    for byte in (GET % 1)[:9]:
        client.sends(bytes([byte]))
        client.later(1.0)
    assert client.reads() == b""
    client.later(2.0)
    [(status, _)] = client.answers("GET")
    assert status == 408
    assert client.ended == 1


@pytest.mark.parametrize("first", [b"", GET % 1], ids=["new", "between requests"])
def test_a_client_that_asks_for_nothing_is_closed(first: bytes) -> None:
    client = Client(request_seconds=10.0, idle_seconds=20.0)
    if first:
        client.sends(first)
        client.reads()
    client.later(19.0 if first else 9.0)
    assert client.ended < 1
    client.later(2.0)
    assert client.ended == 1
    assert client.reads() == b""


def test_an_answer_that_takes_long_to_make_is_no_fault_of_the_client() -> None:
    client = Client(at_once=False, request_seconds=10.0, idle_seconds=20.0, send_seconds=5.0)
    client.sends(GET % 1)
    client.later(100.0)
    client.waiting.popleft()(json_answer(200, "late"))
    assert client.answers("GET") == [(200, "late")]
    assert client.ended < 1


def test_a_client_that_does_not_read_its_answer_is_closed() -> None:
    client = Client(at_once=False, capacity=1024, send_seconds=5.0)
    client.sends(GET % 1)
    client.waiting.popleft()(Answer(200, (BODY,) * 10))
    client.later(4.0)
    # A little, now and then, does not put it off.
    assert client.wire.receive(10)
    client.later(0.5)
    assert client.ended < 1
    client.later(1.0)
    assert client.ended == 1


@pytest.mark.parametrize("close", [False, True])
def test_a_client_that_reads_slowly_gets_the_whole_answer(close: bool) -> None:
    client = Client(at_once=False, capacity=1024, send_seconds=500.0)
    client.sends(GET % 1)
    client.waiting.popleft()(Answer(200, (BODY,) * 10, close=close))
    got = b""
    while len(got) < 10_000:
        client.later(1.0)
        got += client.wire.receive(1 << 20) or b""
    assert got.endswith(BODY)
    client.host.run()
    assert client.ended == (1 if close else 0)


# Answers that go on


class Streaming(Client):
    """A client whose answer goes on, in pieces that the test writes."""

    def __init__(self, **options: Any) -> None:
        super().__init__(at_once=False, **options)
        self.stream: Stream | None = None
        self.gone = 0
        self.sends(GET % 1)
        self.waiting.popleft()(Answer(200, (), "text/event-stream", begin=self._begin))
        self.head = self.reads()

    def _begin(self, stream: Stream) -> Callable[[], None]:
        self.stream = stream
        return self._on_gone

    def _on_gone(self) -> None:
        self.gone += 1

    def write(self, piece: bytes) -> bool:
        assert self.stream is not None
        return self.stream.write(piece)


def test_an_answer_that_goes_on_has_no_length_and_no_time_limit() -> None:
    client = Streaming(request_seconds=1.0, idle_seconds=1.0, send_seconds=1.0)
    assert b"\r\ncontent-length:" not in client.head.lower()
    assert b"\r\ntransfer-encoding: chunked\r\n" in client.head.lower()
    for number in range(3):
        client.later(100.0)
        assert client.write(b"piece %d" % number)
        assert client.reads() == b"7\r\npiece %d\r\n" % number
    assert (client.ended, client.gone) == (0, 0)


def test_of_an_answer_that_is_not_taken_one_piece_waits_and_then_the_connection_ends() -> None:
    client = Streaming(capacity=1024, send_seconds=5.0)
    assert client.write(b"x" * 5000)
    before = client.connection.unwritten
    for _ in range(4):
        client.later(1.0)
        assert not client.write(b"y" * 5000)
        assert client.connection.unwritten <= before
    assert client.gone < 1
    client.later(2.0)
    assert (client.ended, client.gone) == (1, 1)
    assert not client.write(b"too late")


def test_a_client_that_takes_its_piece_late_gets_the_next_one() -> None:
    client = Streaming(capacity=1024, send_seconds=500.0)
    assert client.write(b"x" * 5000)
    got = b""
    while len(got) < 5000:
        client.later(1.0)
        got += client.wire.receive(1 << 20) or b""
    client.later(1000.0)
    assert client.write(b"next")
    assert client.reads().endswith(b"4\r\nnext\r\n")


def test_an_answer_that_goes_on_ends_with_the_connection() -> None:
    client = Streaming()
    client.connection.close("the engine ends")
    assert (client.ended, client.gone) == (1, 1)


def test_an_answer_that_has_gone_on_can_end() -> None:
    client = Streaming()
    assert client.stream is not None
    client.stream.end()
    assert client.reads() == b"0\r\n\r\n"
    assert (client.ended, client.gone) == (1, 1)


def test_head_does_not_begin_an_answer_that_goes_on() -> None:
    client = Client(at_once=False)
    client.sends(b"HEAD /1 HTTP/1.1\r\nhost: localhost\r\n\r\n" + GET % 2)

    def begin(stream: Stream) -> Callable[[], None]:
        raise AssertionError("it has begun")

    client.waiting.popleft()(Answer(200, (), "text/event-stream", begin=begin))
    client.host.run()
    assert [asked.path for asked in client.asked] == ["/1", "/2"]
