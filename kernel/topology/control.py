"""Control: a local socket for operators of a running system.  Request and answer are one line of JSON each.

A request ``{"what": NAME}`` asks for a table that an engine kind announces.  The answer has ``rows``, and
``at``, the time of this system's monotonic clock, so that a client can compute rates.  For ``status`` it has
the statistics instead. A request that also has ``engine`` and ``argument`` calls an operation of that engine
(``Kernel.operate``); the answer has its result, ``done``.  If a request fails, the answer has ``error``.
File permissions allow requests of the owner only.
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

if TYPE_CHECKING:
    from kernel.topology.system import Kernel

TIMEOUT = 2.0
"""Seconds that a client may need to send its request, and that the engines may need to answer."""
LONGEST_REQUEST = 64 * 1024 * 1024
"""Bytes.  It is large because the definitions of a large broker are one request."""
LONGEST_OPERATION = 30.0
"""Seconds that an operation may take."""


class ControlServer:
    """Answers requests one after the other, in a thread of its own.  A busy system answers late."""

    def __init__(self, kernel: Kernel, path: str | Path) -> None:
        self.path: str = str(path)
        self._kernel = kernel
        self._closing = False
        self._socket = _listen(self.path)
        self._inode = os.stat(self.path).st_ino
        self._thread = threading.Thread(target=self._serve, name="kernel control", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering; close the socket, remove its file and end the thread."""
        if self._closing:
            return
        self._closing = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes ``accept``, which closing does not
        self._thread.join()
        self._socket.close()
        with contextlib.suppress(OSError):
            if os.stat(self.path).st_ino == self._inode:  # the file may be that of another process by now
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
                if not self._closing:
                    time.sleep(0.1)  # out of descriptors: try again when some may be free
                continue
            with connection, contextlib.suppress(OSError):
                connection.settimeout(TIMEOUT)
                connection.sendall(self._answer(_read_line(connection)) + b"\n")

    def _answer(self, request: bytes) -> bytes:
        try:
            asked = msgspec.json.decode(request, type=dict[str, Any])
            what, engine = asked.get("what"), asked.get("engine")
            answer = self._look(what) if engine is None else self._do(engine, what, asked.get("argument"))
        except Exception as error:  # no request may end this thread
            answer = {"error": f"{type(error).__name__}: {error}"}
        answer = {"at": time.monotonic(), **answer}
        try:
            return msgspec.json.encode(answer, enc_hook=str)
        except Exception:  # the answer has something that JSON cannot express, as a name that is not Unicode
            return msgspec.json.encode(_as_json(answer))

    def _look(self, what: Any) -> dict[str, Any]:
        if what == "status":
            return {"status": self._kernel.statistics()}
        tables = self._kernel.registry.tables()
        if isinstance(what, str) and what in tables:
            inspection = self._kernel.inspect(what, TIMEOUT)
            return {"rows": inspection.rows, "failed": inspection.failed}
        return {"error": f"unknown request {what!r}; known: {', '.join(('status', *tables))}"}

    def _do(self, engine: Any, what: Any, argument: Any) -> dict[str, Any]:
        try:
            return {"done": self._kernel.operate(engine, what, argument, LONGEST_OPERATION)}
        except KernelError as error:
            return {"error": str(error)}


def _as_json(value: Any) -> Any:
    """Return the value in a form that JSON can express: what is not Unicode is escaped."""
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, dict):
        return {_as_json(str(name)): _as_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(each) for each in value]
    if (
        value is None
        or isinstance(value, bool | float)
        or (isinstance(value, int) and value.bit_length() < 64)
    ):
        return value
    return str(value).encode("utf-8", "backslashreplace").decode()


def ask(path: str | Path, what: str, stall_timeout: float = 3 * TIMEOUT, **more: Any) -> dict[str, Any]:
    """Ask the system whose control socket this is; ``KernelError`` when it does not answer.

    ``more``: ``engine`` and ``argument`` of a request to do something.
    """
    try:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(stall_timeout)
            asking.connect(str(path))
            asking.sendall(msgspec.json.encode({"what": what, **more}) + b"\n")
            received = b"".join(iter(lambda: asking.recv(65536), b""))
        answer = msgspec.json.decode(received, type=dict[str, Any])
    except (OSError, msgspec.DecodeError) as error:
        raise KernelError(f"no answer at {path}: {error}") from None
    if "error" in answer:
        raise KernelError(f"{path}: {answer['error']}")
    return answer


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
    try:
        os.kill(int(path.stem.removeprefix("kernel-")), 0)
    except ProcessLookupError:
        return path.is_socket() and not _somebody_listens(path)
    except (OSError, OverflowError, ValueError):
        pass  # another user's, or not named after a process
    return False


def find_running() -> str:
    """Return the control socket of the only running system of this user."""
    paths = [path for folder in _folders(make=False) for path in sorted(folder.glob("kernel-*.sock"))]
    running = [str(path) for path in paths if _somebody_listens(path)]
    if not running:
        raise KernelError("no running kernel of yours was found; say --control PATH if it listens elsewhere")
    if len(running) > 1:
        raise KernelError(f"several kernels are running; say which: --control {' | '.join(running)}")
    return running[0]


def _folders(*, make: bool = True) -> list[Path]:
    """Return the folders for control sockets, the preferred first: the session's, and a private one of this user."""
    session = os.environ.get("XDG_RUNTIME_DIR")
    folders = [Path(session)] if session and os.path.isdir(session) else []
    private = Path(tempfile.gettempdir()) / f"kernel-{os.getuid()}"
    if make and not folders:
        private.mkdir(mode=0o700, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        there = private.lstat()
        # Anybody may make such a name in a folder that all share: then it is not used at all.
        if stat.S_ISDIR(there.st_mode) and there.st_uid == os.getuid() and not there.st_mode & 0o077:
            folders.append(private)
    if make and not folders:
        raise KernelError(f"{private} is not a private folder of yours; say --control PATH")
    return folders


def _listen(path: str) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX)
    try:
        if os.path.exists(path) and stat.S_ISSOCK(os.stat(path).st_mode) and not _somebody_listens(path):
            os.unlink(path)  # left by a process that has ended
        listening.bind(path)
        os.chmod(path, 0o600)  # before ``listen``: until then nobody can connect
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
        except (BlockingIOError, TimeoutError):  # a process listens, but is busy
            return True
        except OSError:
            return False
    return True


def _read_line(connection: socket.socket) -> bytes:
    line = b"".join(_chunks(connection))
    return line.partition(b"\n")[0]


def _chunks(connection: socket.socket) -> Iterator[bytes]:
    """Receive until the line ends, the peer closes, or the limit of time or size is reached."""
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
