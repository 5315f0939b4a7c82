"""``kernel top``: the live view fits a terminal, obeys keys, and shows names as they are."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from kernel.cli.top import _parts, view
from kernel.topology.control import ControlServer
from kernel.topology.plan import EnginePlan, Plan, RoutePlan
from kernel.topology.system import Kernel
from tests.kernel.cli.test_commands import Command, kernel

__all__ = ["kernel"]

TIMEOUT = 60.0


def status(at: float, *routes: tuple[str, int, int, int]) -> dict[str, Any]:
    rows = [
        {"name": name, "depth": depth, "written": written, "dropped": dropped, "unrouted": 0, "held": 0}
        for name, depth, written, dropped in routes
    ]
    return {"at": at, "status": {"engines": [], "routes": rows}}


BEFORE = (status(1.0, ("a", 0, 0, 0), ("b", 0, 0, 0), ("c", 0, 0, 0)), None)


@pytest.mark.parametrize(
    "by, order", [("rate", "cba"), ("depth", "abc"), ("dropped", "bac"), ("name", "abc")]
)
def test_rows_are_sorted_by_what_was_asked_for(by: str, order: str) -> None:
    now = (status(3.0, ("a", 9, 10, 1), ("b", 5, 20, 7), ("c", 1, 60, 0)), None)
    _, routes = _parts(now, BEFORE, by)
    assert "".join(row["name"] for row in routes.rows) == order
    assert {row["name"]: row["rate"] for row in routes.rows} == {"a": 5.0, "b": 10.0, "c": 30.0}


def rendered(width: int, height: int, *names: str) -> list[str]:
    now = (status(2.0, *((name, 0, 0, 0) for name in names)), None)
    console = Console(width=width, height=height, file=io.StringIO(), force_terminal=False)
    console.print(view(_parts(now, now, "name"), "name", width, height))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width, height", [(80, 24), (60, 12), (200, 60)])
def test_the_view_fits_the_terminal(width: int, height: int) -> None:
    lines = rendered(width, height, *(f"from {'x' * 100} {number}" for number in range(500)))
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    assert re.search(r"Routes \(\d+ more\)", "\n".join(lines))


def test_names_have_no_effect_on_the_terminal() -> None:
    text = "\n".join(rendered(80, 24, "[bold]\x1b[31m\n"))
    assert "[bold]\\x1b[31m" in text
    assert "\x1b" not in text


@pytest.fixture
def path(tmp_path: Path) -> Iterator[str]:
    broker = EnginePlan(
        name="broker", kind="amqp", options={"address": "127.0.0.1:0", "queues": [{"name": "orders"}]}
    )
    app = EnginePlan(name="app", kind="native")
    route = RoutePlan(source="app", targets=("broker",))
    with Kernel(Plan(engines=(broker, app), routes=(route,))) as system:
        system.wait_running()
        with ControlServer(system, tmp_path / "c.sock") as server:
            yield server.path


def test_once_is_for_scripts(kernel: Command, path: str) -> None:
    code, shown, errors = kernel("top", "--once", "--every", "0.1", "--control", path)
    assert (code, errors) == (0, "")
    assert "\x1b" not in shown
    for part in ("Engines", "broker", "running", "Routes", "app -> broker", "Queues", "orders"):
        assert part in shown


def test_no_system_is_an_error(kernel: Command, tmp_path: Path) -> None:
    code, _, errors = kernel("top", "--once", "--control", tmp_path / "none.sock")
    assert code == 1
    assert "no answer at" in errors


@pytest.mark.slow
def test_it_is_live_in_a_terminal_and_obeys_keys(path: str) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    command = [sys.executable, "-m", "kernel", "top", "--every", "0.1", "--control", path]
    environment = {**os.environ, "TERM": "xterm"}
    before = termios.tcgetattr(theirs)
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    try:
        _read_until(ours, b"sorted by rate")
        os.write(ours, b"d")
        _read_until(ours, b"sorted by depth")
        os.write(ours, b"q")
        # Else a full pseudo-terminal would keep the process from ending.
        _read_until(ours, b"\x1b[?1049l")
        assert process.wait(TIMEOUT) == 0
        assert termios.tcgetattr(theirs) == before
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)


def _read_until(descriptor: int, wanted: bytes) -> None:
    seen = b""
    deadline = time.monotonic() + TIMEOUT
    while wanted not in seen:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, seen
        seen += os.read(descriptor, 65536)
