"""The control socket: who may ask, what it answers, and that it leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import stat
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from kernel.contracts.errors import KernelError
from kernel.contracts.timestamp import Timestamp
from kernel.dispatcher.dispatcher import Dispatcher
from kernel.testing.leaks import Leaks
from kernel.threads.engine_thread import EngineThread
from kernel.threads.supervisor import EngineState
from kernel.topology.control import ControlServer, ask, default_path, find_running, watch
from kernel.topology.inspection import Inspection, inspect
from kernel.topology.operation import operate
from kernel.topology.plan import EnginePlan, Plan
from kernel.topology.system import Kernel

BROKER = EnginePlan(
    name="broker", kind="amqp", options={"address": "127.0.0.1:0", "queues": [{"name": "q", "durable": True}]}
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "control.sock"


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    with Kernel(Plan(engines=(BROKER,))) as kernel:
        kernel.wait_running()
        yield kernel


@pytest.fixture
def server(kernel: Kernel, path: Path) -> Iterator[ControlServer]:
    with ControlServer(kernel, path) as server:
        yield server


def test_it_answers_with_rows_of_every_engine(server: ControlServer) -> None:
    answer = ask(server.path, "queues")
    assert [(row["engine"], row["name"], row["messages_ready"]) for row in answer["rows"]] == [
        ("broker", "q", 0)
    ]
    assert answer["failed"] == []
    assert ask(server.path, "bindings")["at"] >= answer["at"]


def test_it_answers_with_the_statistics(server: ControlServer, kernel: Kernel) -> None:
    engine = ask(server.path, "status")["status"]["engines"][0]
    assert (engine["name"], engine["state"]) == ("broker", "running")
    assert engine["address"] == kernel.address_of("broker")


def test_statistics_may_be_asked_for_while_threads_come(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = kernel._parts.threads
    (first,) = threads.values()

    class Growing(dict[str, Any]):
        """The states of a thread; another thread comes when somebody looks at them."""

        def values(self) -> Any:
            threads["late"] = first
            return super().values()

    monkeypatch.setattr(first, "states", Growing(first.states))
    try:
        assert [engine.name for engine in kernel.statistics().engines] == ["broker"]
    finally:
        threads.pop("late", None)


def test_a_tap_for_which_there_is_no_thread_is_refused(
    server: ControlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(KernelError, match="a tap needs a thread: can't start new thread"):
            list(watch(server.path, {"watch": {"source": "broker"}}))
    assert ask(server.path, "queues")["rows"], "it answers the next"


def test_only_the_owner_may_ask(server: ControlServer) -> None:
    assert stat.S_IMODE(os.stat(server.path).st_mode) == 0o600


@pytest.mark.parametrize(
    "request_",
    [
        b"\n",
        b"nonsense\n",
        b"[]\n",
        b'{"what": []}\n',
        b"x" * 5000,
        b'{"what": "\xff"}\n',
        b'{"what": ' + b"[" * 20_000 + b"]" * 20_000 + b"}\n",
    ],
    ids=["empty", "no JSON", "no mapping", "no name", "no end", "no UTF-8", "too deep"],
)
def test_nonsense_is_answered_with_an_error_and_nothing_breaks(
    server: ControlServer, request_: bytes
) -> None:
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(server.path)
        asking.sendall(request_)
        asking.shutdown(socket.SHUT_WR)
        assert "error" in msgspec.json.decode(asking.makefile("rb").readline())
    assert ask(server.path, "queues")["rows"]


def test_a_name_that_is_not_unicode_is_shown_with_escapes_and_nothing_breaks(path: Path) -> None:
    table = {"x-\udcfe": [2**70, None, True, 1.5, b"bytes"]}  # as a client of AMQP may have sent it
    queue = {"name": "q\udcff", "arguments": table}
    engine = EnginePlan(name="broker", kind="amqp", options={"address": "127.0.0.1:0", "queues": [queue]})
    with Kernel(Plan(engines=(engine,))) as kernel, ControlServer(kernel, path) as server:
        kernel.wait_running()
        for _ in range(2):
            (row,) = ask(server.path, "queues")["rows"]
            assert row["name"] == "q\\udcff"
            assert row["arguments"] == {"x-\\udcfe": [str(2**70), None, True, 1.5, "b'bytes'"]}
        assert ask(server.path, "status")["status"]["engines"][0]["name"] == "broker"


def test_a_value_of_a_class_that_json_does_not_know_is_shown_beside_such_a_name(path: Path) -> None:
    """The argument is a ``Timestamp``, which is an ``int``."""
    queue = {"name": "\udcff\udcfe", "arguments": {"x-at": Timestamp(10**12)}}
    plan = Plan(engines=(EnginePlan(name="b", kind="amqp", options={"address": "127.0.0.1:0"}),))
    with Kernel(plan) as kernel, ControlServer(kernel, path) as server:
        kernel.wait_running()
        kernel.inspect = lambda *_: Inspection(rows=[queue], failed=[])  # type: ignore[method-assign]
        (row,) = ask(server.path, "queues")["rows"]
        assert row == {"name": "\\udcff\\udcfe", "arguments": {"x-at": 10**12}}
        assert ask(server.path, "status")["status"], "it answers the next"


def test_an_unknown_question_is_an_error_that_names_the_known(server: ControlServer) -> None:
    with pytest.raises(KernelError, match="unknown request 'weather'; known: status, queues"):
        ask(server.path, "weather")


def test_one_who_hangs_up_at_once_disturbs_nobody(server: ControlServer) -> None:
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(server.path)
    assert ask(server.path, "exchanges")["rows"]


def test_it_leaves_nothing_behind(kernel: Kernel, path: Path) -> None:
    leaks = Leaks()
    with ControlServer(kernel, path) as server:
        ask(server.path, "connections")
    server.close()
    assert not path.exists()
    assert leaks.found() == []


def test_what_a_dead_process_left_is_replaced_and_a_living_one_is_not(kernel: Kernel, path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with ControlServer(kernel, path) as server:
        with pytest.raises(KernelError, match="no control socket at"):
            ControlServer(kernel, path)
        assert ask(server.path, "queues")["rows"]


def test_one_who_has_no_time_for_more_is_alive(kernel: Kernel, path: Path) -> None:
    with contextlib.ExitStack() as stack:
        busy = stack.enter_context(socket.socket(socket.AF_UNIX))
        busy.bind(str(path))
        busy.listen(0)
        for _ in range(2):  # the second finds no place
            waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
            waiting.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                waiting.connect(str(path))
        with pytest.raises(KernelError, match="no control socket at"):
            ControlServer(kernel, path)
        assert path.exists()


def test_nobody_answers_where_nobody_listens(path: Path) -> None:
    with pytest.raises(KernelError, match="no answer at"):
        ask(path, "status")


@pytest.mark.parametrize("is_left", [True, False])
def test_that_a_process_has_ended_is_said_in_place_of_an_error_number(tmp_path: Path, is_left: bool) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    left = tmp_path / f"kernel-{dead.pid}.sock"
    if is_left:
        with socket.socket(socket.AF_UNIX) as nobody:
            nobody.bind(str(left))
    said = f"no answer at {re.escape(str(left))}: process {dead.pid} does not run any more$"
    with pytest.raises(KernelError, match=said):
        ask(left, "status")
    with pytest.raises(KernelError, match=said):
        next(watch(left, {}))


def test_of_several_systems_each_is_named_with_its_file(
    kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    plan = Plan(engines=(), file="feed.toml")
    with (
        Kernel(plan) as other,
        ControlServer(other, tmp_path / "kernel-1.sock"),
        ControlServer(kernel, tmp_path / "kernel-2.sock"),
        pytest.raises(KernelError) as several,
    ):
        find_running()
    assert str(several.value) == (
        "several kernels are running; choose one: "
        f"--control {tmp_path}/kernel-1.sock ({tmp_path}/feed.toml) | {tmp_path}/kernel-2.sock"
    )


@pytest.mark.parametrize("session", [True, False], ids=["session's folder", "private folder"])
def test_one_running_system_is_found(
    kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, session: bool
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path) if session else "")
    with pytest.raises(KernelError, match="no running kernel"):
        find_running()
    with ControlServer(kernel, default_path()) as server:
        assert find_running() == server.path
        assert stat.S_IMODE(os.stat(Path(server.path).parent).st_mode) == 0o700 or session
        with (
            ControlServer(kernel, default_path().with_name("kernel-1.sock")),
            pytest.raises(KernelError, match="several"),
        ):
            find_running()


def test_sockets_of_processes_that_were_killed_are_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    dead = [subprocess.Popen(["true"]) for _ in range(2)]
    assert [process.wait() for process in dead] == [0, 0]
    for name in (dead[0].pid, os.getpid(), "mine"):
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(tmp_path / f"kernel-{name}.sock"))
    (tmp_path / f"kernel-{dead[1].pid}.sock").write_text("no socket")
    path = default_path()
    assert sorted(tmp_path.iterdir()) == sorted(
        [path, tmp_path / "kernel-mine.sock", tmp_path / f"kernel-{dead[1].pid}.sock"]
    )


def test_a_folder_that_others_may_write_to_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    folder = tmp_path / f"kernel-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(KernelError, match="not a private folder"):
        default_path()


def _thread(name: str, post: Callable[[Callable[[], Any]], Any], **engines: Any) -> Any:
    """Return a thread that was never started: ``post`` says what becomes of what it is asked."""
    thread = EngineThread(name, Dispatcher(), lambda event: None)
    thread.dispose()
    thread.states |= {each: EngineState(each, state="running", engine=engines[each]) for each in engines}
    thread.mailbox = SimpleNamespace(post=post)  # type: ignore[assignment]
    return thread


def test_a_thread_that_does_not_answer_is_named_and_the_others_are_shown() -> None:
    showing = SimpleNamespace(inspect=lambda what: [{"name": what}])
    threads = [
        _thread("quick", lambda item: item(), a=showing, silent=object()),
        _thread("stuck", lambda item: None, b=showing),
    ]
    found = inspect(threads, "queues", 0.01)
    assert found.rows == ({"engine": "a", "name": "queues"},)
    assert found.failed == ("thread stuck has not answered within 0.01 s",)


def test_an_engine_that_cannot_answer_is_named() -> None:
    def fail(what: str) -> list[dict[str, Any]]:
        raise ValueError(what)

    found = inspect([_thread("t", lambda item: item(), a=SimpleNamespace(inspect=fail))], "queues", 1)
    assert found.failed == ("engine a: ValueError: queues",)


def test_an_engine_does_what_it_is_asked_for() -> None:
    doing = SimpleNamespace(operate=lambda what, argument: [what, argument])
    threads = [_thread("one", lambda item: item(), a=object()), _thread("two", lambda item: item(), b=doing)]
    assert operate(threads, "b", "dance", {"twice": True}, 1) == ["dance", {"twice": True}]


@pytest.mark.parametrize(
    "engine, complaint",
    [
        ("none", "there is no engine 'none'"),
        ("silent", r"engine 'silent' \(running\) has no operations to ask for"),
        ("fails", "engine 'fails': not that"),
        ("stuck", "engine 'stuck' has not answered within 0.01 s"),
    ],
)
def test_an_engine_that_does_not_do_it_is_named(engine: str, complaint: str) -> None:
    def fail(what: str, argument: Any) -> None:
        raise ValueError("not that")

    threads = [
        _thread("quick", lambda item: item(), silent=object(), fails=SimpleNamespace(operate=fail)),
        _thread("slow", lambda item: None, stuck=SimpleNamespace(operate=fail)),
    ]
    with pytest.raises(KernelError, match=complaint):
        operate(threads, engine, "dance", None, 0.01)


def test_where_nothing_may_be_written_it_is_said_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose file system is read-only."""

    def nowhere() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    def read_only(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    monkeypatch.setattr(Path, "mkdir", read_only)
    with pytest.raises(
        KernelError, match=r"cannot be made \(Read-only file system\); choose a place with --control"
    ):
        default_path()
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)  # who has no folder there
    with pytest.raises(KernelError, match="no running kernel of this user was found"):
        find_running()
