"""The examples with sockets of ØMQ, each with pyzmq on the other side."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.examples.test_examples import TIMEOUT, _kernel_run, _output, _spawn, spawned
from tests.ports import free_port

__all__ = ["spawned"]

pytestmark = [pytest.mark.peer("pyzmq"), pytest.mark.slow]


@pytest.fixture
def context() -> Iterator[Any]:
    import zmq

    with zmq.Context() as made:
        made.linger = 0
        made.rcvtimeo = int(TIMEOUT * 1000)
        yield made


@pytest.fixture
def ports(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The place of each variable."""
    names = ("ZMQ_PORT", "TASKS_PORT", "RESULTS_PORT", "SERVER_PORT", "FRONT_PORT", "BACK_PORT")
    found = {name: str(free_port()) for name in names}
    for name, port in found.items():
        monkeypatch.setenv(name, port)
    return {name: f"tcp://127.0.0.1:{port}" for name, port in found.items()}


def test_weather_is_published(
    context: Any, ports: dict[str, str], spawned: list[subprocess.Popen[str]]
) -> None:
    import zmq

    publisher = _spawn("zmq/weather_publisher.py")
    spawned.append(publisher)
    with context.socket(zmq.SUB) as sub:
        sub.subscribe(b"graz")
        sub.connect(ports["ZMQ_PORT"])
        for _ in range(3):
            place, temperature = sub.recv_multipart()
            assert place == b"graz"
            assert -20 <= int(temperature) <= 40
    assert _output(_spawn("zmq/weather_subscriber.py", "oslo")).startswith("oslo: ")
    publisher.send_signal(signal.SIGINT)
    assert _output(publisher) == f"weather at {ports['ZMQ_PORT']}\n"


def test_weather_is_subscribed_to(
    context: Any, ports: dict[str, str], spawned: list[subprocess.Popen[str]]
) -> None:
    import zmq

    with context.socket(zmq.XPUB) as pub:
        pub.bind(ports["ZMQ_PORT"])
        spawned.append(_spawn("zmq/weather_subscriber.py", "brno"))
        assert pub.recv() == b"\1brno"
        for number in (1, 2, 3, 4, 10):
            pub.send_multipart([b"linz", b"40"])
            pub.send_multipart([b"brno", b"%d" % number])
        assert _output(spawned[0]) == "brno: 4.0 degrees\n"


def test_tasks_are_shared_by_our_workers_and_those_of_pyzmq(
    context: Any, ports: dict[str, str], spawned: list[subprocess.Popen[str]]
) -> None:
    import zmq

    ventilator, worker = _spawn("zmq/ventilator.py"), _spawn("zmq/worker.py")
    spawned += [ventilator, worker]
    with context.socket(zmq.PULL) as pull, context.socket(zmq.PUSH) as push:
        pull.rcvhwm = 1
        push.connect(ports["RESULTS_PORT"])
        pull.connect(ports["TASKS_PORT"])
        done = 0
        while ventilator.poll() is None:
            if pull.poll(20):
                push.send_multipart([b"pyzmq", b"%d" % (int(pull.recv()) ** 2)])
                done += 1
    lines = _output(ventilator).splitlines()
    counts = {line.partition(":")[0]: int(line.split()[-2]) for line in lines[1:]}
    assert sum(counts.values()) == 100
    assert counts.pop("pyzmq", 0) == done
    assert all(name == f"worker {worker.pid}" for name in counts)


def test_a_lazy_pirate_asks_again(
    context: Any, ports: dict[str, str], spawned: list[subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    import zmq

    with context.socket(zmq.ROUTER) as server:
        server.bind(ports["SERVER_PORT"])
        spawned.append(_spawn("zmq/lazy_pirate.py", "question"))
        *address, question = server.recv_multipart()
        assert question == b"question"
        # The first one is not answered until the second has come.
        again = server.recv_multipart()
        assert again[-1] == b"question"
        server.send_multipart([*address, b"too late"])
        server.send_multipart([*again[:-1], b"in time"])
        assert _output(spawned[0]) == "no answer to attempt 1\nin time\n"


def test_a_lazy_pirate_gives_up(ports: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATIENCE", "0.05")
    client = _spawn("zmq/lazy_pirate.py")
    out, _ = client.communicate(timeout=TIMEOUT)
    assert client.returncode == 1
    assert out.splitlines() == [
        *(f"no answer to attempt {n}" for n in (1, 2, 3)),
        "the server seems to be gone",
    ]


def test_a_device(context: Any, ports: dict[str, str], spawned: list[subprocess.Popen[str]]) -> None:
    import zmq

    _kernel_run(spawned, "zmq/device.toml")
    with context.socket(zmq.REQ) as first, context.socket(zmq.REQ) as second, context.socket(zmq.REP) as rep:
        rep.connect(ports["BACK_PORT"])
        for req in (first, second):
            req.connect(ports["FRONT_PORT"])
        first.send(b"one")
        second.send(b"two")
        for _ in range(2):
            rep.send(b"re: " + rep.recv())
        assert [first.recv(), second.recv()] == [b"re: one", b"re: two"]
