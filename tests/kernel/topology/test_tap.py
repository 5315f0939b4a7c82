"""Taps of routes: what passes is seen, and nobody who sends or receives notices."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernel.contracts.errors import KernelClosed, KernelError, UnknownName
from kernel.contracts.message import Envelope, Message
from kernel.plugins import PluginRegistry
from kernel.topology import tap as tap_module
from kernel.topology.control import ControlServer, watch
from kernel.topology.plan import EnginePlan, Plan, RoutePlan
from kernel.topology.system import Kernel
from kernel.topology.tap import Tap, TapWanted

APPS = tuple(EnginePlan(name=name, kind="native") for name in ("feed", "other", "store"))
ROUTES = (
    RoutePlan(source="feed", targets=("store",), match=("eu.#",)),
    RoutePlan(source="other", targets=("store",)),
)
PLAN = Plan(engines=APPS, routes=ROUTES)
TIMEOUT = 60.0


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    with Kernel(PLAN) as kernel:
        yield kernel


def seen(tap: Tap, count: int = 1) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    while len(rows) < count:
        found = tap.read(TIMEOUT)
        assert found, "nothing has passed"
        rows += found
    return rows


def test_a_tap_sees_what_an_engine_sends_and_its_readers_get_it(kernel: Kernel) -> None:
    with kernel.open("feed") as feed, kernel.open("store") as store:
        tap = kernel.tap(TapWanted(source="feed"))
        feed.send(b"hello", key="eu.de")
        feed.send_message(Message(b"\xff", Envelope(key="us", properties={"headers": {"a": "b"}})))
        first, second = seen(tap, 2)
        assert (first["body"], first["key"], first["from"]) == ("hello", "eu.de", "feed")
        # The route does not want it; the tap sees what the engine sends.
        assert (second["body"], second["body_encoding"]) == ("/w==", "base64")
        assert second["properties"] == {"headers": {"a": "b"}}
        assert store.receive(TIMEOUT) == b"hello"
        tap.close()


def test_a_tap_of_routes_to_an_engine_sees_what_their_filters_let_pass(kernel: Kernel) -> None:
    with kernel.open("feed") as feed, kernel.open("other") as other, kernel.open("store"):
        tap = kernel.tap(TapWanted(target="store"))
        feed.send(b"no", key="us")
        feed.send(b"one", key="eu")
        (row,) = seen(tap)
        other.send(b"two", key="us")
        assert [row["body"], *(row["body"] for row in seen(tap))] == ["one", "two"]
        tap.close()


@pytest.mark.parametrize("watched", [{"source": "feed"}, {"target": "store"}])
def test_an_option_that_is_a_field_of_the_message_chooses_on_routes(
    kernel: Kernel, watched: dict[str, str]
) -> None:
    with kernel.open("feed") as feed, kernel.open("store"):
        tap = kernel.tap(TapWanted(**watched, asked={"exchange": "prices"}))
        feed.send_message(Message(b"no", Envelope(key="eu")))
        feed.send_message(Message(b"yes", Envelope(key="eu", exchange="prices")))
        (row,) = seen(tap)
        assert (row["body"], row["exchange"]) == ("yes", "prices")
        tap.close()


def test_an_option_of_routes_needs_no_kind_that_announces_it() -> None:
    registry = PluginRegistry.load(environ={"KERNEL_PLUGINS": "native"})
    with Kernel(PLAN, registry) as kernel, kernel.open("feed"):
        kernel.tap(TapWanted(source="feed", asked={"exchange": "prices"})).close()
        with pytest.raises(KernelError, match="engine 'feed' cannot tap with --queue"):
            kernel.tap(TapWanted(source="feed", asked={"queue": "q"}))


def test_a_tap_sees_what_is_selected(kernel: Kernel) -> None:
    with kernel.open("feed") as feed, kernel.open("store"):
        tap = kernel.tap(TapWanted(source="feed", keys=("eu.*",), headers={"tenant": "a"}, contains="ell"))
        for key, tenant, body in (
            ("eu.1", "a", b"bell"),
            ("us", "a", b"bell"),
            ("eu.1", "b", b"bell"),
            ("eu.1", "a", b"x"),
        ):
            feed.send_message(Message(body, Envelope(key=key, properties={"headers": {"tenant": tenant}})))
        feed.send_message(Message(b"yell", Envelope(key="eu.2", properties={"headers": {"tenant": "a"}})))
        assert [row["key"] for row in seen(tap, 2)] == ["eu.1", "eu.2"]
        tap.close()


@pytest.mark.slow
def test_what_is_too_much_is_dropped_and_counted_and_the_source_goes_on(kernel: Kernel) -> None:
    with kernel.open("feed") as feed, kernel.open("other"), kernel.open("store") as store:
        tap = kernel.tap(TapWanted(source="feed"))
        for number in range(100):
            feed.send_many([b"%d" % number] * 100, key="eu")
        received = 0
        while received < 10_000:
            received += len(store.receive_many(timeout=TIMEOUT))
        shown = seen(tap)
        # The pipe takes whole batches until it has 1,024 messages, in 11 batches.
        assert len(shown) + tap.dropped() == 10_000 - 100
        (more,) = [tap.read(TIMEOUT)]
        assert len(shown) + len(more) + tap.dropped() == 10_000
        tap.close()


def test_a_tap_leaves_nothing_behind(kernel: Kernel) -> None:
    with kernel.open("feed"), kernel.open("store"):
        before = kernel.plan.routes
        for _ in range(3):
            tap = kernel.tap(TapWanted(source="feed"))
            assert [route.targets for route in kernel.plan.routes if route not in before] == [("tap-1",)]
            tap.close()
            tap.close()
            assert kernel.plan.routes == before


def test_a_message_that_only_a_tap_sees_is_one_that_nobody_wants(kernel: Kernel) -> None:
    """A broker asks its port this for a message that is mandatory."""
    with kernel.open("feed") as feed, kernel.open("store"):
        tap = kernel.tap(TapWanted(source="feed"))
        feed.send(b"1", key="us")
        seen(tap)
        assert not feed.caller.port.wants(Envelope(key="us"))
        assert feed.caller.port.wants(Envelope(key="eu"))
        tap.close()


def test_a_tap_goes_on_when_a_changed_topology_is_applied(kernel: Kernel) -> None:
    with kernel.open("feed") as feed, kernel.open("store"):
        tap = kernel.tap(TapWanted(source="feed"))
        kernel.apply(PLAN)
        assert kernel.plan.routes == ROUTES
        tap.read(0)
        feed.send(b"1", key="us")
        assert [row["body"] for row in seen(tap)] == ["1"]
        tap.close()


def test_a_tap_that_is_open_ends_with_the_kernel() -> None:
    kernel = Kernel(PLAN).start()
    opened, failures = threading.Event(), []

    def look() -> None:
        tap = kernel.tap(TapWanted(source="feed"))
        opened.set()
        try:
            tap.read(TIMEOUT)
        except KernelError as error:
            failures.append(error)
        tap.close()

    thread = threading.Thread(target=look)
    thread.start()
    assert opened.wait(TIMEOUT)
    kernel.close()
    thread.join(TIMEOUT)
    assert kernel.join(TIMEOUT)
    assert [type(failure) for failure in failures] == [KernelClosed]


@pytest.mark.parametrize(
    "wanted, said",
    [
        (TapWanted(source="fed"), "no route begins or ends at 'fed'; did you mean 'feed'"),
        (
            TapWanted(source="store"),
            "no route leads from 'store'; to watch what passes inside an engine: --queue",
        ),
        (TapWanted(source="feed", target="other"), "no route leads from 'feed' to 'other'"),
        (TapWanted(), "say what to watch"),
        (
            TapWanted(asked={"queue": "q"}),
            "no engine of this system can tap with --queue; watch routes: --from",
        ),
        (
            TapWanted(source="feed", asked={"queue": "q"}),
            "engine 'feed' cannot tap with --queue; engines that can: none",
        ),
    ],
)
def test_what_is_not_there_cannot_be_watched(kernel: Kernel, wanted: TapWanted, said: str) -> None:
    with pytest.raises(KernelError, match=said):
        kernel.tap(wanted)
    assert kernel.plan.routes == ROUTES
    assert issubclass(UnknownName, KernelError)


@pytest.fixture
def server(kernel: Kernel, tmp_path: Path) -> Iterator[ControlServer]:
    with ControlServer(kernel, tmp_path / "control.sock") as server:
        yield server


def until(condition: Callable[[], bool], changed: threading.Event) -> None:
    """Wait for a condition that an event of the test announces."""
    while not condition():
        assert changed.wait(TIMEOUT)


def test_a_watcher_gets_lines_until_it_has_what_it_wanted(kernel: Kernel, server: ControlServer) -> None:
    with kernel.open("feed") as feed, kernel.open("store"):
        lines = watch(server.path, {"watch": {"source": "feed"}, "limit": 2})
        assert next(lines) == {"watching": True}
        for body in (b"1", b"2", b"3"):
            feed.send(body, key="eu")
        first, second, end = lines
    assert [first["message"]["body"], second["message"]["body"]] == ["1", "2"]
    assert (end["shown"], end["end"]) == (2, "that many were wanted")


def test_a_key_that_is_not_unicode_is_shown_with_escapes(kernel: Kernel, server: ControlServer) -> None:
    lines = watch(server.path, {"watch": {"source": "feed"}, "limit": 1})
    assert next(lines) == {"watching": True}
    feed = kernel.open("feed")
    feed.send(b"1", key="eu.\udcff")  # as a client of AMQP may have sent it
    message, end = lines
    assert message["message"]["key"] == "eu.\\udcff"
    assert end["end"] == "that many were wanted"


@pytest.mark.parametrize(
    "argument",
    [
        {},
        {"watch": {"source": "none"}},
        {"watch": {"sorce": "feed"}},
        {"watch": {"source": "feed", "keys": ["#.#.", 3]}},
    ],
)
def test_a_watcher_who_asks_wrongly_is_told(kernel: Kernel, server: ControlServer, argument: Any) -> None:
    with pytest.raises(KernelError):
        list(watch(server.path, argument))


class Gone:
    """Tells when the kernel has no tap any more."""

    def __init__(self, kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
        self.event = threading.Event()
        remove = kernel.remove_route

        def removing(plan: RoutePlan) -> None:
            remove(plan)
            self.event.set()

        monkeypatch.setattr(kernel, "remove_route", removing)


@pytest.mark.slow
def test_a_watcher_that_is_killed_leaves_no_tap(
    kernel: Kernel, server: ControlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = Gone(kernel, monkeypatch)
    command = [sys.executable, "-m", "kernel", "tap", "--from", "feed", "--json", "--control", server.path]
    with kernel.open("feed"), kernel.open("store"):
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
        )
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == {"watching": True}
        assert ("tap-1",) in [route.targets for route in kernel.plan.routes]
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert gone.event.wait(TIMEOUT)
        assert kernel.plan.routes == ROUTES


@pytest.mark.slow
def test_a_watcher_that_reads_nothing_does_not_hold_up_others_or_the_end(
    kernel: Kernel, tmp_path: Path
) -> None:
    server = ControlServer(kernel, tmp_path / "control.sock")
    with kernel.open("feed") as feed, kernel.open("store") as store, socket.socket(socket.AF_UNIX) as asking:
        asking.connect(server.path)
        asking.sendall(b'{"what": "tap", "argument": {"watch": {"source": "feed"}}}\n')
        assert json.loads(asking.recv(17)) == {"watching": True}
        for _ in range(200):
            feed.send_many([b"x" * 4000] * 100, key="eu")
            received = 0
            while received < 100:
                received += len(store.receive_many(timeout=TIMEOUT))
        lines = watch(server.path, {"watch": {"source": "feed"}, "limit": 1})
        assert next(lines) == {"watching": True}
        lines.close()
        server.close()


@pytest.mark.slow
def test_so_many_watchers_and_no_more(
    kernel: Kernel, server: ControlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernel.topology.control.MOST_WATCHERS", 1)
    with kernel.open("feed"), kernel.open("store"):
        lines = watch(server.path, {"watch": {"source": "feed"}})
        next(lines)
        with pytest.raises(KernelError, match="there are 1 taps already; end another one first"):
            next(watch(server.path, {"watch": {"source": "feed"}}))
        lines.close()


def test_a_tap_works_for_a_small_share_of_the_time(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(tap_module.time, "thread_time", lambda: clock[0])
    with kernel.open("feed"), kernel.open("store"):
        tap = kernel.tap(TapWanted(source="feed"))
        rests: list[float] = []
        monkeypatch.setattr(tap._woken, "wait", rests.append)  # type: ignore[attr-defined]
        tap.read(0)
        for worked in (0.001, 0.01, 10.0):
            clock[0] += worked
            tap.read(0)
        tap.close()
    assert rests == [0.0, pytest.approx(0.049), pytest.approx(0.49), 1.0]
