"""Places: where a broker for tests runs, in this process or in one of its own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from typing import Protocol as Interface

from kernel.contracts.errors import KernelError

if TYPE_CHECKING:
    from kernel import Kernel

ENGINE = "broker"
"""The name of the broker's engine."""
CLIENT = "client"
"""The name of a client without a socket, for ``Kernel.open``."""
TIMEOUT = 60.0

Options = Mapping[str, Any]


class Place(Interface):
    """A running broker, as ``FaultyBroker`` sees it."""

    def start(self, options: Options) -> None:
        """Start it, and wait until it listens."""
        ...

    def operate(self, argument: Mapping[str, Any]) -> dict[str, Any]:
        """Call its operation ``fault``."""
        ...

    def frozen(self) -> contextlib.AbstractContextManager[None]:
        """Let it neither read nor write nor keep time meanwhile."""
        ...

    def kill(self, data_dir: str) -> None:
        """End it without giving it time for anything, and leave its data directory as it was then."""
        ...

    def stop(self) -> None:
        """End it in good order."""
        ...


class ThisProcess:
    """A broker in a thread of this process."""

    def __init__(self) -> None:
        self.kernel: Kernel | None = None

    def start(self, options: Options) -> None:
        """Start it, and wait until it listens."""
        from kernel import EnginePlan, Kernel, Plan

        engines = (
            EnginePlan(name=ENGINE, kind="test-broker", options=dict(options)),
            EnginePlan(name=CLIENT, kind="broker-client", options={"broker": ENGINE}),
        )
        self.kernel = Kernel(Plan(engines=engines))
        self.kernel.start()
        self.kernel.wait_running(TIMEOUT)

    def operate(self, argument: Mapping[str, Any]) -> dict[str, Any]:
        """Call its operation."""
        done: dict[str, Any] = self._running().operate(ENGINE, "fault", argument)
        return done

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Let its thread wait meanwhile."""
        until = threading.Event()
        self.operate({"do": "freeze", "until": until})
        try:
            yield
        finally:
            until.set()

    def kill(self, data_dir: str) -> None:
        """Copy the data directory in the middle of its work, stop the broker, and go on with the copy."""
        # What the broker writes while it stops goes to the folder that is removed, so nothing of it is there
        # after the restart.
        copy = data_dir and data_dir + "+"
        self.operate({"do": "die", "copy": copy})
        self.stop()
        if copy:
            shutil.rmtree(data_dir)
            Path(copy).rename(data_dir)

    def stop(self) -> None:
        """Stop the kernel."""
        kernel, self.kernel = self.kernel, None
        if kernel is not None:
            kernel.close(linger=0)
            if not kernel.join(TIMEOUT):
                raise KernelError(f"{kernel} has not stopped {TIMEOUT:.0f} s after it was closed")

    def _running(self) -> Kernel:
        if self.kernel is None:
            raise KernelError("the broker does not run")
        return self.kernel


class AnotherProcess:
    """A broker in a process of its own: ``kernel run``."""

    def __init__(self) -> None:
        # Not in the folder of the test, whose name may be too long for a socket.
        self._folder = TemporaryDirectory(prefix="kernel-")
        folder = Path(self._folder.name)
        self._file = folder / "broker.toml"
        self._control = folder / "control"
        self._log = folder / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, options: Options) -> None:
        """Start it, and wait until it listens."""
        lines = [f"[engines.{ENGINE}]", 'kind = "test-broker"']
        self._file.write_text(
            "\n".join([*lines, *(f"{key} = {_toml(value)}" for key, value in options.items())])
        )
        command = [
            sys.executable,
            "-m",
            "kernel",
            "run",
            str(self._file),
            "--json",
            "--control",
            str(self._control),
        ]
        reading, writing = os.pipe()
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                [*command, "--ready-fd", str(writing)], stdout=log, stderr=log, pass_fds=(writing,)
            )
        # Only the child has this end now. If it ends before it is ready, the read below ends, too.
        os.close(writing)
        with os.fdopen(reading) as ready:
            if ready.read() != "ready\n":
                raise KernelError(f"the broker does not start: {self._log.read_text()}")

    def operate(self, argument: Mapping[str, Any]) -> dict[str, Any]:
        """Call its operation over the control socket."""
        from kernel import ask

        done: dict[str, Any] = ask(self._control, "fault", engine=ENGINE, argument=dict(argument))["done"]
        return done

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop the process meanwhile (SIGSTOP)."""
        self._running().send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._running().send_signal(signal.SIGCONT)

    def kill(self, data_dir: str) -> None:
        """Kill it (SIGKILL)."""
        process = self._running()
        process.kill()
        process.wait(TIMEOUT)
        self._process = None
        # The socket is left behind.
        self._control.unlink(missing_ok=True)

    def stop(self) -> None:
        """Ask it to stop."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            process.wait(TIMEOUT)
        self._folder.cleanup()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise KernelError("the broker does not run")
        return self._process


def _toml(value: Any) -> str:
    """Write an option as TOML: texts and numbers as in JSON, tables in one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)
