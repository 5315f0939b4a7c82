"""``kernel run`` as a process of its own, spoken to by signals."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kernel import EnginePlan, Kernel, Plan
from kernel.cli import main as cli
from kernel.cli.event_log import EventLog
from kernel.cli.run import Runner
from kernel.contracts.engine import EngineEvent

LISTENER = '[engines.{name}]\nkind = "stream"\naddress = "backend+tcp://127.0.0.1:0"\nmode = "listen"\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "system.toml"
    path.write_text(LISTENER.format(name="one"))
    return path


class Running:
    """A ``kernel run`` and the lines that it prints."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.seen: list[dict[str, Any]] = []

    def wait_for(self, what: str) -> dict[str, Any]:
        """Read until a line of that sort."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.seen.append(json.loads(line))
            if self.seen[-1]["what"] == what:
                return self.seen[-1]
        raise AssertionError(f"it ended without {what!r}: {self.seen}")

    def stop(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=60)


@contextmanager
def running(file: Path, *options: str, pass_fds: tuple[int, ...] = ()) -> Iterator[Running]:
    command = [sys.executable, "-m", "kernel", "run", str(file), "--json", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, pass_fds=pass_fds) as process:
        try:
            yield Running(process)
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_when_it_is_ready_and_stops_cleanly(file: Path, number: signal.Signals) -> None:
    with running(file) as it:
        it.wait_for("ready")
        assert any(line["what"] == "running" and line["engine"] == "one" for line in it.seen)
        it.process.send_signal(number)
        assert it.wait_for("stopping")["detail"] == number.name
        it.wait_for("stopped")
        assert it.process.wait(timeout=60) == 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_comes_twice_at_once_is_one_until_the_very_end(
    file: Path, number: signal.Signals
) -> None:
    with running(file) as it:
        it.wait_for("ready")
        it.process.send_signal(number)
        it.wait_for("stopped")
        while it.process.poll() is None:  # as often as can be, while the program exits
            it.process.send_signal(number)
        assert it.process.returncode == 0


@pytest.mark.slow
def test_a_descriptor_tells_a_parent_that_it_is_ready(file: Path) -> None:
    reader, writer = os.pipe()
    with running(file, "--ready-fd", str(writer), pass_fds=(writer,)) as it:
        os.close(writer)
        with os.fdopen(reader) as ready:
            assert ready.read() == "ready\n"
        it.wait_for("ready")
        assert it.stop(signal.SIGTERM) == 0


@pytest.mark.slow
def test_an_engine_that_has_come_to_its_end_before_the_last_is_up_was_up(tmp_path: Path) -> None:
    kept = {"path": str(tmp_path / "journal")}
    with Kernel(Plan(engines=(EnginePlan(name="kept", kind="journal", options=kept),))) as kernel:
        kernel.wait_running()
    file = tmp_path / "system.toml"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listener = LISTENER.format(name="late").replace(":0", f":{taken.getsockname()[1]}")
        file.write_text(f'{listener}[engines.replay]\nkind = "journal-replay"\npath = "{kept["path"]}"\n')
        with running(file) as it:
            for what in ("failed", "ended"):
                if what not in [line["what"] for line in it.seen]:
                    it.wait_for(what)
            taken.close()
            it.wait_for("ready")
            assert it.stop(signal.SIGTERM) == 0


def test_it_is_not_ready_before_it_has_said_of_all_engines_that_they_run(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine's state says so first; whoever hears that it is ready finds the address in the log."""
    telling, looked = threading.Event(), threading.Event()
    log = EventLog(as_json=True)
    runner = Runner(str(file), log, no_control=True)
    tell, look = log.event, runner._look

    def told_late(event: EngineEvent) -> None:
        telling.set()
        looked.wait(60)
        tell(event)

    def looks(kernel: Kernel) -> None:
        telling.wait(60)
        look(kernel)
        looked.set()
        if runner._ready:
            runner._requests.put("that is enough")

    monkeypatch.setattr(log, "event", told_late)
    monkeypatch.setattr(runner, "_look", looks)
    runner.run(0)
    said = [json.loads(line)["what"] for line in capsys.readouterr().out.splitlines()]
    assert said[:2] == ["running", "ready"]


def test_a_run_that_is_to_fail_fast_ends_when_an_engine_cannot_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "system.toml"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        file.write_text(LISTENER.format(name="late").replace(":0", f":{port}"))
        status = cli.run(["run", str(file), "--fail-fast", "--no-control", "--verbose"])
    said = capsys.readouterr()
    assert status == 1
    reason = f"cannot listen on backend+tcp://127.0.0.1:{port}: Address already in use"
    reason += "; another program listens there: change the address, or stop that program"
    assert re.search(rf"^kernel: engine 'late' cannot start: .*{re.escape(reason)}$", said.err, re.MULTILINE)
    assert re.search(r"^    Traceback ", said.out, re.MULTILINE)


def test_a_run_that_tries_again_says_once_that_it_could_end_instead(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "system.toml"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        file.write_text(LISTENER.format(name="late").replace(":0", f":{taken.getsockname()[1]}"))
        runner = Runner(str(file), EventLog(as_json=True), no_control=True)
        log = runner._on_event
        failures: list[EngineEvent] = []

        def logs(event: EngineEvent) -> None:
            log(event)
            failures.extend([event] if event.what == "failed" else [])
            if len(failures) == 2:
                runner._requests.put("that is enough")

        runner._on_event = logs  # type: ignore[method-assign]
        runner.run(0)
    said = [json.loads(line)["what"] for line in capsys.readouterr().out.splitlines()]
    assert said[:3] == ["failed", "hint", "failed"]
    assert said.count("hint") == 1


def test_a_run_that_is_to_fail_fast_tries_again_once_all_were_up(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runner = Runner(str(file), EventLog(as_json=True), no_control=True, fail_fast=True)
    look = runner._look

    def looks(kernel: Kernel) -> None:
        look(kernel)
        if runner._ready:
            runner._on_event(EngineEvent(engine="one", what="failed", detail="later"))
            runner._requests.put("that is enough")

    runner._look = looks  # type: ignore[method-assign]
    runner.run(0)
    stopping = [json.loads(line) for line in capsys.readouterr().out.splitlines() if "stopping" in line]
    assert [line["detail"] for line in stopping] == ["that is enough"]


def test_what_is_left_out_is_told_at_the_start_and_after_a_hang_up(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runner = Runner(str(file), EventLog(as_json=True), no_control=True)
    file.write_text(file.read_text() + "when = ''\n")
    look = runner._look

    def looks(kernel: Kernel) -> None:
        look(kernel)
        file.write_text("[engines.other]\nkind = 'no-such-kind'\noptional = true\n")
        for request in ("SIGHUP", "that is enough"):
            runner._requests.put(request)

    runner._look = looks  # type: ignore[method-assign]
    runner.run(0)
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    told = [line["detail"].partition(" is left out")[0] for line in said if line["what"] == "left out"]
    assert told == [f"{file}:1: engine 'one'", f"{file}:1: engine 'other'"]


def test_an_engine_that_only_an_application_opens_is_told(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runner = Runner(str(file), EventLog(as_json=True), no_control=True)
    file.write_text(
        "[engines.archive]\nkind = 'native'\n[engines.b]\nkind = 'amqp'\naddress = '127.0.0.1:0'\n"
        "[[routes]]\nfrom = 'b'\nto = 'archive'\n"
    )
    runner._look = lambda kernel: runner._requests.put("that is enough")  # type: ignore[method-assign]
    runner.run(0)
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (told,) = [line for line in said if line["what"] == "warning"]
    assert told["engine"] == "archive"
    text = (
        "engine 'archive' is opened by application code, which `kernel run` does not have; its messages wait."
    )
    assert told["detail"].startswith(f"{file}:1: {text}")


@pytest.mark.slow
def test_a_hang_up_applies_what_changed_and_nothing_else(file: Path) -> None:
    with running(file) as it:
        it.wait_for("ready")
        file.write_text(file.read_text() + LISTENER.format(name="two"))
        it.process.send_signal(signal.SIGHUP)
        assert it.wait_for("changed")["detail"] == "+ engine two"
        assert it.wait_for("reloaded")["detail"].endswith("changes: 1")
        file.write_text("[engines")
        it.process.send_signal(signal.SIGHUP)
        assert "not TOML" in it.wait_for("error")["detail"]
        it.wait_for("unchanged")
        assert it.stop(signal.SIGTERM) == 0
    assert sum(line["what"] == "running" and line["engine"] == "one" for line in it.seen) == 1


@pytest.mark.slow
def test_a_signal_that_another_thread_gets_stops_it(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The system chooses the thread; only the main thread can call Python's handler, and it sleeps."""
    runner = Runner(str(file), EventLog(as_json=True), no_control=True)
    poll, sleeps = runner._requests._poll, threading.Event()

    class Poll:
        def poll(self, timeout: float | None) -> object:
            if runner._ready:
                sleeps.set()
            return poll.poll(timeout)

    def kill() -> None:
        sleeps.wait(60)
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    runner._requests._poll = Poll()  # type: ignore[assignment]
    killer = threading.Thread(target=kill)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    killer.start()
    try:
        runner.run(0)
    finally:
        killer.join()
        for number, handler in before.items():
            signal.signal(number, handler)
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["detail"] for line in said if line["what"] == "stopping"] == ["SIGTERM"]


def test_a_file_with_mistakes_is_not_run(tmp_path: Path) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text("[engines.x]\nkind = 'y'\n")
    done = subprocess.run([sys.executable, "-m", "kernel", "run", str(bad)], capture_output=True, text=True)
    assert done.returncode == 1
    assert f"{bad}:2: unknown engine kind 'y'" in done.stderr
