"""A web hook and an HTTP server on the loopback interface.

The plugin is registered by hand, so that it need not be installed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from queue import Queue
from typing import Any

import pytest
from kernel_webhook import plugin
from kernel_webhook.options import WebhookOptions

from kernel import EnginePlan, Kernel, Origin, PluginRegistry, RoutePlan, TimedOut, WaterMarks
from kernel.contracts.engine import EngineEvent
from kernel.testing.end_checks import SINK_CHECKS, SinkSubject
from kernel.testing.fixtures import KernelFactory, kernel_factory

__all__ = ["kernel_factory"]

TIMEOUT = 60.0

Answer = Callable[[bytes], int]


class Server:
    """Answers each POST with the status that ``answer`` says, and keeps what it answered with 2xx."""

    def __init__(self, answer: Answer, port: int = 0) -> None:
        self.got: list[tuple[str, bytes]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = TIMEOUT

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = answer(body)
                if 200 <= status < 300:
                    server.got.append((self.headers["X-Message-Key"], body))
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.send_header("Connection", "close")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._http = HTTPServer(("127.0.0.1", port), Handler)
        self.port: int = self._http.server_address[1]
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


@pytest.fixture
def serve(kernel_factory: KernelFactory) -> Iterator[Callable[..., Server]]:
    """Servers that are closed before the kernels are looked at for what they leave behind."""
    servers: list[Server] = []

    def serve(answer: Answer = lambda _: 204, port: int = 0) -> Server:
        servers.append(Server(answer, port))
        return servers[-1]

    yield serve
    for server in servers:
        server.close()


@pytest.fixture
def registry() -> PluginRegistry:
    registry = PluginRegistry.load()
    if "webhook" not in registry.plugins:
        registry.add(plugin, Origin("webhook", "kernel-webhook", "1.0"))
    return registry


@pytest.mark.parametrize("check", SINK_CHECKS, ids=lambda check: check.__name__)
def test_it_passes_the_checks_that_every_sink_has_to(
    check: Callable[[SinkSubject], None],
    serve: Callable[..., Server],
    kernel_factory: KernelFactory,
    registry: PluginRegistry,
) -> None:
    server = serve()
    options = {"url": f"http://127.0.0.1:{server.port}/", "retry": {"first": 0.01, "most": 0.05}}
    check(
        SinkSubject(
            plan=lambda: EnginePlan(name="sink", kind="webhook", options=options),
            arrived=lambda: [body for _, body in server.got],
            kernels=partial(kernel_factory, registry=registry),
        )
    )


@pytest.fixture
def start(kernel_factory: KernelFactory, registry: PluginRegistry) -> Callable[..., Kernel]:

    def start(port: int, *, on_event: Any = None, high: int = 1000) -> Kernel:
        options = {"url": f"http://127.0.0.1:{port}/hook?a=b", "retry": {"first": 0.01, "most": 0.05}}
        route = RoutePlan(
            source="app", targets=("hook",), confirm=True, dead_letters="dead", marks=WaterMarks(high=high)
        )
        return kernel_factory(
            EnginePlan(name="hook", kind="webhook", options=options),
            route,
            registry=registry,
            on_event=on_event,
        )

    return start


def test_each_message_is_posted_in_order_and_confirmed(
    serve: Callable[..., Server], start: Callable[..., Kernel]
) -> None:
    server = serve()
    bodies = [b"%d" % number for number in range(250)]
    with start(server.port).open("app") as app:
        app.send_many(bodies, key="orders/\u00e4 b")
        app.wait_confirmed(timeout=TIMEOUT)
    assert server.got == [("orders/%C3%A4%20b", body) for body in bodies]


def _let_pass_on(app: Any) -> None:
    """A channel passes on what came back to it when it is called."""
    try:
        app.wait_confirmed(timeout=0)
    except TimedOut:
        pass


def test_a_message_that_the_server_refuses_is_a_dead_letter_and_the_others_go_on(
    serve: Callable[..., Server], start: Callable[..., Kernel]
) -> None:
    server = serve(lambda body: 422 if body.startswith(b"bad") else 200)
    kernel = start(server.port)
    with kernel.open("app") as app, kernel.open("dead") as dead:
        app.send_many([b"1", b"bad 2", b"3", b"bad 4"])
        letters: list[Any] = []
        while len(letters) < 2:
            try:
                letters.append(dead.receive_message(timeout=0.05))
            except TimedOut:
                _let_pass_on(app)
    assert [body for _, body in server.got] == [b"1", b"3"]
    assert [bytes(letter) for letter in letters] == [b"bad 2", b"bad 4"]
    headers = letters[0].envelope.properties["headers"]
    assert headers["x-refused-by"] == "hook"
    assert headers["x-refused-reason"].startswith("422")


@pytest.mark.parametrize("status", [500, 503, 429])
def test_what_the_server_cannot_take_now_is_posted_again(
    serve: Callable[..., Server], start: Callable[..., Kernel], status: int
) -> None:
    refusals = iter([status] * 3)
    server = serve(lambda body: next(refusals, 200) if body == b"2" else 200)
    with start(server.port).open("app") as app:
        app.send_many([b"1", b"2", b"3"])
        app.wait_confirmed(timeout=TIMEOUT)
    assert [body for _, body in server.got] == [b"1", b"2", b"3"]


def test_nothing_is_lost_while_the_server_is_away(
    serve: Callable[..., Server], start: Callable[..., Kernel]
) -> None:
    server = serve()
    server.close()
    events: Queue[EngineEvent] = Queue()
    kernel = start(server.port, on_event=events.put)
    with kernel.open("app") as app:
        app.send_many([b"1", b"2"])
        while events.get(timeout=TIMEOUT).what != "retrying":
            pass
        back = serve(port=server.port)
        app.send(b"3")
        app.wait_confirmed(timeout=TIMEOUT)
    assert [body for _, body in back.got] == [b"1", b"2", b"3"]


def test_it_goes_at_once_when_the_kernel_closes_while_the_server_does_not_answer(
    serve: Callable[..., Server], start: Callable[..., Kernel]
) -> None:
    asked, over = threading.Event(), threading.Event()

    def never(_: bytes) -> int:
        asked.set()
        over.wait(TIMEOUT)
        return 200

    server = serve(never)
    kernel = start(server.port)
    app = kernel.open("app")
    app.send(b"x")
    assert asked.wait(TIMEOUT)
    kernel.close(linger=0)
    assert kernel.join(5)
    over.set()


@pytest.mark.parametrize("url", ["ftp://host/", "nothing", "http:///path"])
def test_an_address_that_is_none_is_found_out_at_the_beginning(url: str) -> None:
    with pytest.raises(ValueError, match="url"):
        WebhookOptions(url=url)
