"""Control: a local socket for operators of a running system.  Request and answer are one line of JSON each.

A request ``{"what": NAME}`` asks for a table that an engine kind announces.  The answer has ``rows``, and
``at``, the time of this system's monotonic clock, so that a client can compute rates.  For ``status`` it has
the statistics instead; for ``file``, the path of the topology file; for ``operations`` the rows say which
engine can do what; ``explain`` has an ``argument`` (``kernel.topology.explaining.Question``) and gets
``done``.  ``tap`` has one as well and gets many lines (``kernel.topology.tapping``).  A request that also has
``engine`` and ``argument`` calls an operation of that engine (``Kernel.operate``); the answer has its result,
``done``.  If a request fails, the answer has ``error``.

One connection carries one request and one answer.  There is no login: whoever may connect may ask for
everything, and the permissions of the socket's file let only its owner connect.

The server has a thread of its own, because ``Kernel.inspect`` and ``operate`` wait for the engines' threads.
It serves one client after the other.  So every step with a client has a time limit, or one client that sends
nothing would keep out all others.  And nothing that a request causes may end the thread, because nobody would
notice until the next request goes unanswered.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kernel.contracts.errors import KernelError
from kernel.topology.answers import as_json

if TYPE_CHECKING:
    from kernel.topology.system import Kernel
    from kernel.topology.tapping import Watcher

TIMEOUT = 2.0
"""Seconds that a client may need to send its request, and that the engines may need to answer."""
_QUICKLY = 0.5
"""Seconds that each of several systems may take to say which topology file it has."""
LONGEST_REQUEST = 64 * 1024 * 1024
"""Bytes.  It is large because the definitions of a large broker are one request."""
MOST_WATCHERS = 20
_OWN = ("explain", "file", "operations", "tap")
"""Requests that the kernel answers itself, besides ``status``."""
LONGEST_OPERATION = 30.0
"""Seconds that an operation may take."""


class ControlServer:
    """Answers requests one after the other, in a thread of its own.  A busy system answers late."""

    def __init__(self, kernel: Kernel, path: str | Path) -> None:
        self.path: str = str(path)
        self._kernel = kernel
        self._closing = False
        self._watchers: list[tuple[Watcher, threading.Thread]] = []
        # Before the thread starts: an error about the path is raised here, to whoever has chosen it.
        self._socket = _listen(self.path)
        # Which file is ours: ``close`` compares it.
        self._inode = os.stat(self.path).st_ino
        self._thread = threading.Thread(target=self._serve, name="kernel control", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering; close the socket, remove its file and end the thread."""
        if self._closing:
            return
        self._closing = True
        # Closing a socket does not wake a thread that waits in ``accept``.  ``shutdown`` does.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        # Nobody begins to watch after this, so the list of watchers is complete.
        self._thread.join()
        for watcher, thread in self._watchers:
            watcher.stop()
            thread.join()
        self._socket.close()
        # Somebody may have removed the file, and another process may have made one of this name since then.
        with contextlib.suppress(OSError):
            if os.stat(self.path).st_ino == self._inode:
                os.unlink(self.path)

    def __enter__(self) -> ControlServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self) -> None:
        while not self._closing:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                # The process has no descriptor left (EMFILE).  The client stays in the backlog, so that
                # ``accept`` would fail again at once: wait until some descriptors may be free.
                if not self._closing:
                    time.sleep(0.1)
                continue
            # A client that closes early or is too slow is an ``OSError``, and its own affair.
            with contextlib.suppress(OSError):
                connection.settimeout(TIMEOUT)
                # Empty if a process only looks whether somebody listens (``_somebody_listens``).
                request = _read_line(connection)
                if self._begin_to_watch(request, connection):
                    continue
                connection.sendall(self._answer(request) + b"\n")
            connection.close()

    def _begin_to_watch(self, request: bytes, connection: socket.socket) -> bool:
        """Give a request for a tap a thread of its own, since it may last for ever; False for any other."""
        try:
            asked = msgspec.json.decode(request, type=dict[str, Any])
        # Octets that are not UTF-8, and lists that are nested too deeply, have errors of their own.
        # ``_answer`` meets the same error, and tells the client.
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        if asked.get("what") != "tap" or asked.get("engine") is not None:
            return False
        self._watchers = [pair for pair in self._watchers if pair[1].is_alive()]
        # False, so that ``_answer`` tells the client: each watcher is a thread, and anybody of this user may
        # forget one.
        if len(self._watchers) >= MOST_WATCHERS:
            return False
        # Here, as in ``_explain``: few systems are ever asked.
        from kernel.topology.tapping import Watcher

        watcher = Watcher(self._kernel, connection, asked.get("argument"))
        thread = threading.Thread(target=watcher.serve, name="kernel tap", daemon=True)
        try:
            thread.start()
        # The system gives this process no more threads.
        except RuntimeError as error:
            with connection:
                connection.sendall(as_json({"error": f"a tap needs a thread: {error}"}) + b"\n")
            return True
        self._watchers.append((watcher, thread))
        return True

    def _answer(self, request: bytes) -> bytes:
        try:
            asked = msgspec.json.decode(request, type=dict[str, Any])
            what, engine = asked.get("what"), asked.get("engine")
            if engine is not None:
                answer = self._do(engine, what, asked.get("argument"))
            elif what == "tap":
                answer = {"error": f"there are {MOST_WATCHERS} taps already; end another one first"}
            elif what == "explain":
                answer = self._explain(asked.get("argument"))
            else:
                answer = self._look(what)
        # Also for a fault in the code of an engine: the client is told, and this thread goes on.
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        # Read here, beside the figures: a client that measured the time itself would count the way of the
        # answer, too.
        answer = {"at": time.monotonic(), **answer}
        return as_json(answer)

    def _look(self, what: Any) -> dict[str, Any]:
        # What the kernel can tell itself.  All other tables are announced by engine kinds.
        if what == "status":
            return {"status": self._kernel.statistics()}
        if what == "file":
            file = self._kernel.plan.file
            return {"file": file and os.path.abspath(file)}
        if what == "operations":
            return {"rows": self._operations()}
        tables = self._kernel.registry.tables()
        if isinstance(what, str) and what in tables:
            inspection = self._kernel.inspect(what, TIMEOUT)
            return {"rows": inspection.rows, "failed": inspection.failed}
        return {"error": f"unknown request {what!r}; known: {', '.join(('status', *tables, *_OWN))}"}

    def _operations(self) -> list[dict[str, Any]]:
        """Return which engines can be asked for what, besides tables."""
        kinds = self._kernel.registry.engines
        return [
            {"engine": engine.name, "kind": engine.kind, "operations": kinds[engine.kind].kind.operations}
            for engine in self._kernel.plan.engines
            if engine.kind in kinds
        ]

    def _explain(self, argument: Any) -> dict[str, Any]:
        from kernel.topology.explaining import Question

        try:
            question = msgspec.convert(argument, Question)
            return {"done": msgspec.to_builtins(self._kernel.explain(question, LONGEST_OPERATION))}
        except (KernelError, msgspec.ValidationError) as error:
            return {"error": str(error)}

    def _do(self, engine: Any, what: Any, argument: Any) -> dict[str, Any]:
        try:
            return {"done": self._kernel.operate(engine, what, argument, LONGEST_OPERATION)}
        except KernelError as error:
            return {"error": str(error)}


def ask(path: str | Path, what: str, timeout: float = 3 * TIMEOUT, **more: Any) -> dict[str, Any]:
    """Ask the system whose control socket this is; ``KernelError`` when it does not answer.

    ``more``: ``engine`` and ``argument`` of a request to do something.
    """
    # The time limit is for the whole answer: to read the request, to ask the engines and to write may each
    # take ``TIMEOUT``.
    try:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(timeout)
            asking.connect(str(path))
            asking.sendall(msgspec.json.encode({"what": what, **more}) + b"\n")
            # The server closes the connection after its answer: the end of the stream is the end of the
            # answer.
            received = b"".join(iter(lambda: asking.recv(65536), b""))
        answer = msgspec.json.decode(received, type=dict[str, Any])
    except (OSError, msgspec.DecodeError) as error:
        raise KernelError(f"no answer at {path}: {_why_silent(path, error)}") from None
    if "error" in answer:
        raise KernelError(f"{path}: {answer['error']}")
    return answer


def watch(path: str | Path, argument: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Ask for a tap, and yield the lines of its answer as they come.

    ``KernelError`` if there is no such system.
    """
    try:
        with socket.socket(socket.AF_UNIX) as asking:
            # No time limit: the next message may pass after hours. The end of the system ends the stream.
            asking.connect(str(path))
            asking.sendall(msgspec.json.encode({"what": "tap", "argument": argument}) + b"\n")
            with asking.makefile("rb") as lines:
                for line in lines:
                    answer = msgspec.json.decode(line, type=dict[str, Any])
                    if "error" in answer:
                        raise KernelError(f"{path}: {answer['error']}")
                    yield answer
    except (OSError, msgspec.DecodeError) as error:
        raise KernelError(f"no answer at {path}: {_why_silent(path, error)}") from None


def engine_with(path: str, operation: str, named: str | None, option: str = "--engine") -> str:
    """Return which engine of a running system to ask.

    The one that is named, or else the only one that can answer.

    ``option`` is how a user names one; it is for the error, a ``KernelError``.
    """
    rows = ask(path, "operations")["rows"]
    able = [row["engine"] for row in rows if operation in row["operations"]]
    if named is not None:
        if named not in able:
            raise KernelError(
                f"engine {named!r} cannot {operation}; engines that can: {', '.join(able) or 'none of this system'}"
            )
        return named
    if not able:
        raise KernelError(f"no engine of this system can {operation}")
    if len(able) > 1:
        raise KernelError(f"several engines can {operation}; say which: {option} {' | '.join(able)}")
    name: str = able[0]
    return name


def default_path() -> Path:
    """Return the default path of this process's control socket.

    Remove the files of processes that were killed.
    """
    folder = _folders()[0]
    for path in filter(_is_left, folder.glob("kernel-*.sock")):
        path.unlink(missing_ok=True)
    return folder / f"kernel-{os.getpid()}.sock"


def _is_left(path: Path) -> bool:
    """Return whether the process in a socket's file name has ended.

    Nobody listening is not enough: a process that is starting may have bound the socket and not listen yet.
    """
    return _ended_process(path) is not None and path.is_socket() and not _somebody_listens(path)


def _ended_process(path: Path) -> int | None:
    """Return the number of the process in a socket's file name, if that process has ended."""
    number = path.name.removeprefix("kernel-").removesuffix(".sock")
    if path.name != f"kernel-{number}.sock" or not number.isdecimal():
        return None
    try:
        # The number may have been given to another process. Then the file stays until that one has ended.
        os.kill(int(number), 0)
    except ProcessLookupError:
        return int(number)
    except (OSError, OverflowError, ValueError):
        # A process of another user (EPERM), or more digits than any process has.
        pass
    return None


def _why_silent(path: str | Path, error: Exception) -> str:
    """Return why there is no answer, for people."""
    ended = _ended_process(Path(path)) if isinstance(error, OSError) else None
    return str(error) if ended is None else f"process {ended} does not run any more"


def find_running() -> str:
    """Return the control socket of the only running system of this user."""
    paths = [path for folder in _folders(make=False) for path in sorted(folder.glob("kernel-*.sock"))]
    running = [str(path) for path in paths if _somebody_listens(path)]
    if not running:
        raise KernelError(
            "no running kernel of this user was found; name its control socket with --control PATH"
        )
    if len(running) > 1:
        shown = " | ".join(map(_with_file, running))
        raise KernelError(f"several kernels are running; choose one: --control {shown}")
    return running[0]


def _with_file(path: str) -> str:
    """Return a control socket with the topology file of its system, if that can be had quickly."""
    try:
        file = ask(path, "file", _QUICKLY)["file"]
    # It is busy, it has just ended, or it is of a version that does not tell.
    except KernelError:
        file = ""
    return f"{path} ({file})" if file else path


def _folders(*, make: bool = True) -> list[Path]:
    """Return the folders for control sockets, the preferred one first.

    They are that of the login session and a private one of this user.  A kernel makes its socket in the first
    one.  A search looks into both, because another process may have been started without a session.
    """
    session = os.environ.get("XDG_RUNTIME_DIR")
    folders = [Path(session)] if session and os.path.isdir(session) else []
    private = _private_folder()
    try:
        if make and not folders:
            private.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise KernelError(
            f"no control socket: {private} cannot be made ({error.strerror}); choose a place with --control PATH, or "
            "set XDG_RUNTIME_DIR"
        ) from None
    with contextlib.suppress(FileNotFoundError):
        there = private.lstat()
        # ``lstat``, and the checks of owner and mode: in a folder that all users share, anybody may have made
        # a folder or a link of this name first, and would then own our sockets' folder.  It is not used at
        # all.
        if stat.S_ISDIR(there.st_mode) and there.st_uid == os.getuid() and not there.st_mode & 0o077:
            folders.append(private)
    if make and not folders:
        raise KernelError(
            f"{private} is not a private folder of this user; choose a place with --control PATH"
        )
    return folders


def _private_folder() -> Path:
    try:
        temporary = tempfile.gettempdir()
    except FileNotFoundError:  # none may be written, as in some containers
        temporary = "/tmp"
    return Path(temporary) / f"kernel-{os.getuid()}"


def _listen(path: str) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX)
    try:
        # Left by a process that has ended without removing it: ``bind`` would fail with EADDRINUSE.
        if os.path.exists(path) and stat.S_ISSOCK(os.stat(path).st_mode) and not _somebody_listens(path):
            os.unlink(path)
        listening.bind(path)
        # Between ``bind`` and ``listen`` nobody can connect, so the umask of the process does not matter.
        os.chmod(path, 0o600)
        listening.listen()
    except OSError as error:
        listening.close()
        raise KernelError(f"no control socket at {path}: {error}") from None
    return listening


def _somebody_listens(path: str | Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(TIMEOUT)
        try:
            probe.connect(str(path))
        except (BlockingIOError, TimeoutError):
            # The backlog is full: a process listens, and is busy.
            return True
        except OSError:
            return False
    return True


def _read_line(connection: socket.socket) -> bytes:
    line = b"".join(_chunks(connection))
    return line.partition(b"\n")[0]


def _chunks(connection: socket.socket) -> Iterator[bytes]:
    """Receive until the line ends, the peer closes, or the limit of time or size is reached."""
    # The time limit of the socket is for one ``recv``.  Without a deadline for all of them a client could
    # keep the thread by sending a byte now and then.
    deadline = time.monotonic() + TIMEOUT
    size = 0
    while size < LONGEST_REQUEST and time.monotonic() < deadline:
        data = connection.recv(65536)
        if not data:
            return
        size += len(data)
        yield data
        if b"\n" in data:
            return
