"""The pages of a running kernel: who may see which, what is no page, and what health says."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme

from kernel import KernelError
from kernel.contracts.engine import EngineEvent, Host
from kernel.contracts.kinds import EngineSetup
from kernel.plugins import PluginRegistry
from kernel.testing.fixtures import KernelFactory, plan_of_text
from tests.plugins.engines.web.pages import THREADS, TIMEOUT, USERS, broker, get, watched, web

pytestmark = pytest.mark.peer("prometheus-client")


@pytest.fixture
def short_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plugins.engines.web.logins.LOGIN_DELAY", 0.01)


# Logins


@pytest.mark.parametrize("login", ["guest:guest", "watcher:pa:ss"])
def test_users_with_a_tag_for_it_see_the_figures(login: str, kernel_factory: KernelFactory) -> None:
    assert get(watched(kernel_factory), "/metrics", login).status == 200


def test_without_a_login_the_client_is_asked_for_one(kernel_factory: KernelFactory) -> None:
    kernel = watched(kernel_factory)
    got = get(kernel, "/metrics")
    assert got.status == 401
    # Some tools send a password only to who calls itself as RabbitMQ does.
    assert got.headers["www-authenticate"].startswith('Basic realm="RabbitMQ Management"')
    assert got.json() == {"error": "not_authorized", "reason": "Login failed"}
    assert kernel.statistics().engines[0].counters["logins_refused"] == 0, "nobody has tried a password"


@pytest.mark.parametrize("login", ["guest:wrong", "nobody:guest", "guest:", ":", "guest:guest\x00"])
@pytest.mark.usefixtures("short_delay")
def test_a_wrong_login_is_refused_counted_and_reported_by_the_broker(
    login: str, kernel_factory: KernelFactory
) -> None:
    events: list[EngineEvent] = []
    kernel = kernel_factory(*THREADS, broker(), web(broker="broker"), on_event=events.append)
    got = get(kernel, "/metrics", login)
    assert got.status == 401
    assert got.headers["connection"] == "close"
    counters = {engine.name: engine.counters["logins_refused"] for engine in kernel.statistics().engines}
    assert counters == {"broker": 1, "web": 1}
    assert [event.engine for event in events if event.what == "login refused"] == ["broker"]


@pytest.mark.parametrize("header", ["Basic", "Basic ?", "Basic Z3Vlc3Q=", "Bearer Z3Vlc3Q6Z3Vlc3Q=", ""])
def test_what_is_no_basic_login_is_none(header: str, kernel_factory: KernelFactory) -> None:
    kernel = watched(kernel_factory)
    assert get(kernel, "/metrics", Authorization=header).status == 401
    assert kernel.statistics().engines[0].counters["logins_refused"] == 0


def test_a_user_without_the_tag_is_refused(kernel_factory: KernelFactory) -> None:
    got = get(watched(kernel_factory), "/metrics", "worker:guest")
    assert got.status == 403
    assert "monitoring" in got.json()["reason"]


def test_logins_cannot_be_checked_without_the_broker(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(*THREADS, web(broker="gone"))
    got = get(kernel, "/metrics", "guest:guest")
    assert got.status == 503
    assert "'gone'" in got.json()["reason"]


@pytest.mark.parametrize("host", ["localhost:15672", "127.0.0.1", "[::1]:80", "LOCALHOST"])
def test_without_a_broker_there_is_no_login(host: str, kernel_factory: KernelFactory) -> None:
    assert get(kernel_factory(*THREADS, web()), "/metrics", Host=host).status == 200


@pytest.mark.parametrize(
    "host", ["attacker.example", "attacker.example:15672", "10.0.0.1", "localhost.example"]
)
def test_without_a_login_foreign_names_are_refused(host: str, kernel_factory: KernelFactory) -> None:
    assert get(kernel_factory(*THREADS, web()), "/metrics", Host=host).status == 421


def test_without_a_login_it_listens_on_this_machine_only() -> None:
    text = '[engines.web]\nkind = "web"\naddress = "0.0.0.0:15672"'
    with pytest.raises(KernelError, match="can be reached from other machines"):
        plan_of_text(text, PluginRegistry.load())


def test_a_file_names_a_broker_that_it_has() -> None:
    text = '[engines.web]\nkind = "web"\nbroker = "brocker"\n[engines.broker]\nkind = "amqp"\naddress = "127.0.0.1:0"'
    with pytest.raises(KernelError, match="its broker 'brocker' is no engine of this file; engines: broker"):
        plan_of_text(text, PluginRegistry.load())


# What is no page


def test_an_unknown_path_is_not_found(kernel_factory: KernelFactory) -> None:
    kernel = watched(kernel_factory)
    for path in ("/page.html", "/metrics/", "/../metrics", "/%00", "//metrics"):
        got = get(kernel, path)
        assert got.status == 404
        assert got.json() == {"error": "Object Not Found", "reason": "Not Found"}


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "BREW"])
@pytest.mark.parametrize("path", ["/metrics", "/health/ready"])
def test_pages_can_only_be_read(path: str, method: str, kernel_factory: KernelFactory) -> None:
    got = get(watched(kernel_factory), path, "guest:guest", method)
    assert got.status == 405
    assert got.headers["allow"] == "GET, HEAD"


def test_head_tells_the_length(kernel_factory: KernelFactory) -> None:
    got = get(watched(kernel_factory), "/metrics", "guest:guest", "HEAD")
    assert got.status == 200
    assert int(got.headers["content-length"]) > 1000
    assert got.body == b""


def test_answers_are_for_one_reader_and_no_place_for_scripts(kernel_factory: KernelFactory) -> None:
    headers = get(watched(kernel_factory), "/health/live").headers
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-security-policy"].startswith("default-src 'none'")


# Health


class Stuck:
    """An engine whose thread does not go on until the test says so."""

    def __init__(self, waits: threading.Event, release: threading.Event) -> None:
        self._waits, self._release = waits, release

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        task_status.started("")
        host.soon(self._wait)
        await trio.sleep_forever()

    def _wait(self) -> None:
        self._waits.set()
        self._release.wait(TIMEOUT)

    def statistics(self) -> dict[str, Any]:
        return {}


class Failing:
    """An engine that never comes up."""

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        raise RuntimeError("no")

    def statistics(self) -> dict[str, Any]:
        return {}


def test_health_needs_no_login(kernel_factory: KernelFactory) -> None:
    kernel = watched(kernel_factory)
    for path in ("/health/live", "/health/ready"):
        got = get(kernel, path)
        assert (got.status, got.json()) == (200, {"status": "ok"})


def test_an_engine_that_has_failed_is_not_ready_but_alive(kernel_factory: KernelFactory) -> None:
    failed = threading.Event()
    kernel = kernel_factory(
        *THREADS, web(), on_event=lambda event: failed.set() if event.what == "failed" else None
    )

    def make(setup: EngineSetup) -> Failing:
        return Failing()

    kernel.host("bad", make, "brokers")
    assert failed.wait(TIMEOUT)
    got = get(kernel, "/health/ready")
    assert got.status == 503
    assert got.json() == {"status": "failed", "reason": "engine bad is failed"}
    assert get(kernel, "/health/live").status == 200


def test_a_thread_that_does_not_go_on_is_not_ready(
    kernel_factory: KernelFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plugins.engines.web.health.SECONDS", 0.1)
    kernel, waits, release = kernel_factory(*THREADS, web()), threading.Event(), threading.Event()

    def make(setup: EngineSetup) -> Stuck:
        return Stuck(waits, release)

    try:
        kernel.host("stuck", make, "brokers")
        assert waits.wait(TIMEOUT)
        got = get(kernel, "/health/ready")
        assert got.status == 503
        assert "thread brokers has not answered" in got.json()["reason"]
    finally:
        release.set()


# Connections


def test_connections_beyond_the_limit_are_closed(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(*THREADS, web(max_connections=2))
    host, port = kernel.address_of("web").split(":")
    wires = [socket.create_connection((host, int(port)), TIMEOUT) for _ in range(3)]
    try:
        assert wires[2].recv(1) == b""
        wires[0].sendall(b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert wires[0].recv(12) == b"HTTP/1.1 200"
    finally:
        for wire in wires:
            wire.close()


def test_pages_over_tls(kernel_factory: KernelFactory, tmp_path: Path) -> None:
    authority, certificate = trustme.CA(), tmp_path / "server.pem"
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(certificate)
    kernel = kernel_factory(
        *THREADS, web(address="http+tls://127.0.0.1:0", tls={"certificate": str(certificate)})
    )
    context = ssl.create_default_context()
    authority.configure_trust(context)
    port = int(kernel.address_of("web").split(":")[1])
    connection = http.client.HTTPSConnection("localhost", port, context=context, timeout=TIMEOUT)
    try:
        for _ in range(2):
            connection.request("GET", "/metrics")
            answer = connection.getresponse()
            assert answer.status == 200
            assert b"kernel_engine_up" in answer.read()
    finally:
        connection.close()


def test_pages_over_a_unix_socket(kernel_factory: KernelFactory, tmp_path: Path) -> None:
    path = str(tmp_path / "web")
    kernel_factory(*THREADS, web(address=f"http+unix://{path}"))
    with socket.socket(socket.AF_UNIX) as wire:
        wire.settimeout(TIMEOUT)
        wire.connect(path)
        wire.sendall(b"GET /health/ready HTTP/1.0\r\n\r\n")
        with wire.makefile("rb") as answer:
            assert answer.read().endswith(b'{"status":"ok"}\n')


def test_users_from_elsewhere_only_log_in_if_they_may(kernel_factory: KernelFactory) -> None:
    """The broker is told where the client is; an engine that does not say counts as being elsewhere."""
    kernel = watched(kernel_factory)
    login = {"mechanism": "PLAIN", "user": "guest", "secret": b"guest", "peer": "x"}
    here = {**login, "facts": {"loopback": True}}
    assert kernel.operate("broker", "authenticate", here) == {
        "user": "guest",
        "tags": USERS["guest"]["tags"],
        "vhosts": ["/"],
    }
    for refused in (login, {**here, "mechanism": "EXTERNAL"}, {**here, "secret": b"\xff"}, {}):
        with pytest.raises(KernelError, match="login refused"):
            kernel.operate("broker", "authenticate", refused)
