"""What a service manager is told (sd_notify(3)), by the class and by ``kernel run``."""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernel.cli.event_log import EventLog
from kernel.cli.run import Runner
from kernel.cli.service_manager import ServiceManager
from kernel.contracts.system import NO_TABLE
from kernel.topology.inspection import Inspection

SECONDS = 60.0
PARTS = '[engines.a]\nkind = "hub"\n'


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket of a manager; its name is that of the environment."""
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(SECONDS)
        yield listening


def told(manager: socket.socket) -> dict[str, str]:
    return dict(line.split("=", 1) for line in manager.recv(4096).decode().split("\n"))


def test_it_is_told_in_lines(manager: socket.socket) -> None:
    service = ServiceManager({"NOTIFY_SOCKET": manager.getsockname()})
    service.is_ready("all\nis well")
    assert manager.recv(4096) == b"READY=1\nSTATUS=all is well"
    service.reloads()
    said = told(manager)
    assert said.pop("MONOTONIC_USEC").isdecimal()
    assert said == {"RELOADING": "1"}
    service.stops("SIGTERM")
    assert manager.recv(4096) == b"STOPPING=1\nSTATUS=SIGTERM"
    service.is_alive()
    assert manager.recv(4096) == b"WATCHDOG=1"


@pytest.mark.skipif(sys.platform != "linux", reason="abstract names are Linux's")
def test_an_abstract_name_begins_with_an_at() -> None:
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as listening:
        name = f"kernel-test-{os.getpid()}"
        listening.bind("\0" + name)
        listening.settimeout(SECONDS)
        ServiceManager({"NOTIFY_SOCKET": "@" + name}).is_alive()
        assert listening.recv(100) == b"WATCHDOG=1"


@pytest.mark.parametrize("place", ["", "vsock:2:1234", "/nowhere/at/all", "relative"])
def test_without_a_manager_nothing_is_told(place: str) -> None:
    service = ServiceManager({"NOTIFY_SOCKET": place})
    service.is_ready("ready")
    service.stops("over")
    assert service.alive_every is None


@pytest.mark.parametrize(
    "environment, seconds",
    [
        ({"WATCHDOG_USEC": "3000000"}, 1.5),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}, 1.5),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getppid())}, None),  # of our parent
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_a_sign_of_life_is_due_twice_in_the_time_of_the_watchdog(
    environment: dict[str, str], seconds: float | None
) -> None:
    assert ServiceManager({"NOTIFY_SOCKET": "/run/notify", **environment}).alive_every == seconds
    assert ServiceManager(environment).alive_every is None


def test_while_a_thread_does_not_answer_no_sign_of_life_is_given(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", manager.getsockname())
    monkeypatch.setenv("WATCHDOG_USEC", "2000000")
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    log = io.StringIO()
    answers = [Inspection(failed=("thread 'a' has not answered",)), Inspection()]
    asked: list[tuple[str, float]] = []

    def inspect(what: str, timeout: float) -> Inspection:
        asked.append((what, timeout))
        return answers.pop(0)

    kernel: Any = SimpleNamespace(inspect=inspect)
    runner = Runner("file.toml", EventLog(stream=log))
    with closing(runner._requests):
        due = runner._give_sign_of_life(kernel, None)
        assert "no sign of life to the service manager: thread 'a' has not answered" in log.getvalue()
        assert due is not None
        assert runner._give_sign_of_life(kernel, due) == due, "it is not time yet"
        assert asked == [(NO_TABLE, 0.5)]
        runner._give_sign_of_life(kernel, due - 10)
    assert asked == [(NO_TABLE, 0.5)] * 2
    assert manager.recv(100) == b"WATCHDOG=1"
    manager.setblocking(False)
    with pytest.raises(BlockingIOError):
        manager.recv(100)


def test_a_running_system_tells_what_becomes_of_it(manager: socket.socket, tmp_path: Path) -> None:
    file = tmp_path / "system.toml"
    file.write_text(PARTS)
    environment = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "200000"}
    running = subprocess.Popen(
        [sys.executable, "-m", "kernel", "run", str(file), "--no-control"],
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
    )
    try:
        signs, states = 0, []
        while signs < 3 or len(states) < 1:
            said = told(manager)
            signs += "WATCHDOG" in said
            states += [said] if "WATCHDOG" not in said else []
        assert states == [{"READY": "1", "STATUS": f"{file}: all engines are up"}]
        running.send_signal(signal.SIGHUP)
        states = []
        while len(states) < 2:
            states += [said] if "WATCHDOG" not in (said := told(manager)) else []
        assert [sorted(said) for said in states] == [["MONOTONIC_USEC", "RELOADING"], ["READY", "STATUS"]]
        running.terminate()
        while "STOPPING" not in (said := told(manager)):
            assert "WATCHDOG" in said
        assert said["STATUS"] == "stopping: SIGTERM"
        assert running.wait(SECONDS) == 0
    finally:
        running.kill()
        running.wait()
