"""Stretches of a journal sent again in the system that writes it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernel import EnginePlan, Envelope, Kernel, Message, RoutePlan
from kernel.cli.main import run
from kernel.contracts.errors import KernelError
from kernel.testing.fixtures import KernelFactory
from kernel.topology.control import ControlServer
from plugins.apis.native.channel import Channel
from plugins.engines.broker.local.client import BrokerClient
from plugins.engines.journal.rewinds import MOST
from plugins.protocols.journal_format.names import segment_names
from tests.plugins.engines.journal.conftest import bodies_in, numbered

TIMEOUT = 60.0


@pytest.fixture
def system(kernel_factory: KernelFactory, tmp_path: Path) -> Kernel:
    """A journal of 100 messages, with the keys ``even`` and ``odd``, that goes on."""
    kernel = kernel_factory(
        EnginePlan(name="app", kind="native"),
        EnginePlan(name="other", kind="native"),
        EnginePlan(
            name="broker", kind="broker", options={"exchanges": [{"name": "again", "type": "fanout"}]}
        ),
        EnginePlan(name="log", kind="journal", options={"path": str(tmp_path / "j")}),
        RoutePlan(source="app", targets=("log",), confirm=True),
    )
    with kernel.open("app") as app:
        for number in range(100):
            envelope = Envelope(key=("even", "odd")[number % 2], properties={"headers": {"n": number}})
            app.send_message(Message(b"%d" % number, envelope))
            if not number:
                # So that the others are received at a later time.
                app.wait_confirmed(timeout=TIMEOUT)
        app.wait_confirmed(timeout=TIMEOUT)
    return kernel


@pytest.fixture
def control(system: Kernel, tmp_path: Path) -> Iterator[str]:
    with ControlServer(system, tmp_path / "control") as server:
        yield server.path


def begin(system: Kernel, **wanted: Any) -> dict[str, str]:
    wanted = {"target": "other", "start": "earliest", "end": "latest", **wanted}
    named: dict[str, str] = system.operate("log", "rewind", wanted)
    return named


def end_of(system: Kernel, named: dict[str, str]) -> dict[str, Any]:
    state: dict[str, Any] = until(lambda: _ended(system, named))
    return state


def _ended(system: Kernel, named: dict[str, str]) -> dict[str, Any] | None:
    state: dict[str, Any] = system.operate("log", "rewind-state", named)
    return state if state["ended"] else None


def until(happened: Callable[[], Any]) -> Any:
    """The end of a rewind is told to those who ask."""
    deadline = time.monotonic() + TIMEOUT
    while not (found := happened()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


def receive(app: Channel, count: int) -> list[bytes]:
    got: list[bytes] = []
    while len(got) < count:
        got += map(bytes, app.receive_many(timeout=TIMEOUT))
    return got


def test_a_stretch_comes_again_exactly(system: Kernel, tmp_path: Path) -> None:
    with system.open("other") as other:
        named = begin(system, start=10, end=20)
        first = other.receive_message(timeout=TIMEOUT)
        assert (first.body, first.key) == (b"10", "even")
        assert first.envelope.properties == {"headers": {"n": 10}}
        assert receive(other, 9) == numbered(11, 20)
        # It ends when what it has sent is confirmed, and not before.
        state = system.operate("log", "rewind-state", named)
        assert not state["ended"]
        other.confirm()
        state = end_of(system, named)
    assert state == {"sent": 10, "read_to": 20, "position": 20, "ended": True, "failure": ""}
    # Nothing is left of it.
    assert [route.source for route in system.plan.routes] == ["app"]
    with pytest.raises(KernelError, match="no rewind"):
        system.operate("log", "rewind-state", named)
    # The journal goes on.
    with system.open("app") as app:
        app.send(b"more")
        app.wait_confirmed(timeout=TIMEOUT)
    assert bodies_in(tmp_path / "j") == [*numbered(0, 100), b"more"]


def test_into_a_broker_under_another_exchange(
    system: Kernel, control: str, capsys: pytest.CaptureFixture[str]
) -> None:
    client: BrokerClient
    with system.open("client", "broker-client", broker="broker") as client:
        client.declare_queue("q")
        client.bind("q", "again")
        arguments = [
            "rewind",
            "broker",
            "--key",
            "odd",
            "--to",
            "50",
            "--into",
            "again",
            "--control",
            control,
        ]
        assert run(arguments) == 0
        assert capsys.readouterr().out == "25 messages sent; broker has confirmed all\n"
        got = [client.get("q") for _ in range(25)]
        assert [each.body for each in got if each] == numbered(0, 50)[1::2]
        assert client.get("q") is None


def test_the_exchange_is_the_affair_of_whoever_is_no_broker(system: Kernel) -> None:
    with system.open("other") as other:
        named = begin(system, end=1, into="again")
        assert other.receive_message(timeout=TIMEOUT).envelope.exchange == "again"
        other.confirm()
        assert end_of(system, named)["failure"] == ""


def test_who_stops_it_learns_how_far_it_came(system: Kernel) -> None:
    with system.open("other") as other:
        # A microsecond between two messages is a quarter of an hour now.
        named = begin(system, speed=1e-9)
        assert receive(other, 1) == [b"0"]
        other.confirm()
        until(lambda: system.operate("log", "rewind-state", named)["position"] == 1)
        state = system.operate("log", "rewind-end", named)
        assert (state["sent"], state["position"]) == (1, 1)
    until(lambda: len(system.plan.routes) == 1)


def test_its_route_goes(system: Kernel) -> None:
    with system.open("other") as other:
        named = begin(system)
        receive(other, 100)
        (route,) = [route for route in system.plan.routes if route.source == named["name"]]
        system.remove_route(route)
        assert end_of(system, named)["failure"] == "a changed topology has removed its route"


def test_damage_ends_it_and_not_the_journal(
    system: Kernel, control: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "j"
    (name,) = segment_names(path)
    with open(name.data_path(path), "r+b") as data:
        data.seek(-200, 2)
        data.write(b"\xff" * 100)
    reader = threading.Thread(target=_confirm_everything, args=(system,))
    reader.start()
    try:
        assert run(["rewind", "other", "--control", control]) == 1
    finally:
        system.open("app").send(b"end", key="end")
        system.close()
        reader.join()
    said = capsys.readouterr().err
    assert name.data_path(path).name in said
    assert "confirmed" in said


def _confirm_everything(system: Kernel) -> None:
    try:
        with system.open("other") as other:
            while True:
                other.receive(timeout=TIMEOUT)
                other.confirm()
    except KernelError:
        return


@pytest.mark.parametrize(
    "wanted, error",
    [
        ({"target": "othr"}, "no engine 'othr' to send to; engines: app, other, broker, log"),
        (
            {"target": "broker", "into": "agian"},
            "broker 'broker' has no exchange 'agian' in vhost '/'; declare it before; did you mean 'again'",
        ),
        ({"start": "yesterday"}, "'yesterday' is neither an offset nor a time"),
        ({"speed": "fast"}, "Expected `float`"),
        ({"colour": "red"}, "unknown field `colour`"),
    ],
)
def test_what_cannot_be(system: Kernel, wanted: dict[str, Any], error: str) -> None:
    with pytest.raises(KernelError, match=error):
        begin(system, **wanted)
    assert len(system.plan.routes) == 1


def test_there_is_an_end_to_how_many(system: Kernel) -> None:
    for _ in range(MOST):
        begin(system)
    with pytest.raises(KernelError, match=f"{MOST} rewinds already"):
        begin(system)


def test_of_today(system: Kernel, control: str, capsys: pytest.CaptureFixture[str]) -> None:
    """All messages are older than the last minute of today, unless the test runs in it."""
    arguments = ["rewind", "broker", "--from", "23:59:59.999999", "--json", "--control", control]
    assert run(arguments) == 0
    assert json.loads(capsys.readouterr().out)["sent"] == 0
    assert run(["rewind", "broker", "--from", "25:00", "--control", control]) == 2
