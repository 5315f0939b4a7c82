"""Schedule: an engine that runs a report of ``kernel pipeline`` at intervals.

Each run is a process: Spark would not leave the kernel's threads alone, and a JVM that is killed for lack of
memory must not take the kernel along.  The process is that of the command line, so that a run does what the
same command does.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from kernel.contracts.engine import EngineEvent, Host

if TYPE_CHECKING:
    from plugins.apis.spark.schedule_options import JobOptions

_LONGEST = 500
"""Characters of what a run has said that are reported."""


class Schedule:
    """Runs one job.  It has no port: what a report emphasizes is sent by the run itself."""

    def __init__(self, name: str, options: JobOptions) -> None:
        self._name = name
        self._options = options
        self._counters = {"runs": 0, "failed": 0}
        self._seconds = 0.0

    async def run(self, host: Host, *, task_status: trio.TaskStatus[str]) -> None:
        """Run the job until cancelled.

        A run that is under way then is ended; with a history it is repeated.
        """
        every = self._options.every
        task_status.started(f"{self._options.job} every {every:g} s")
        due = trio.current_time()
        while True:
            await self._run_once(host)
            # Not as often as were missed: a machine that has slept need not tell the same several times.
            due = max(due + every, trio.current_time())
            await trio.sleep_until(due)

    async def _run_once(self, host: Host) -> None:
        begun = trio.current_time()
        done = await trio.run_process(
            command_of(self._options), capture_stdout=True, capture_stderr=True, check=False
        )
        self._seconds = trio.current_time() - begun
        self._counters["runs"] += 1
        self._counters["failed"] += done.returncode != 0
        # The last line: Spark may have warned of something before.
        said = (done.stderr if done.returncode else done.stdout).decode(errors="replace").strip()
        line = said.splitlines()[-1][:_LONGEST] if said else f"exit status {done.returncode}"
        what = "job failed" if done.returncode else "job done"
        host.report(EngineEvent(engine=self._name, what=what, detail=line))

    def statistics(self) -> dict[str, Any]:
        """Return how often the job was run, and how long the last run took."""
        return {**self._counters, "last_seconds": round(self._seconds, 3)}


def command_of(options: JobOptions) -> list[str]:
    """Return the command of one run."""
    command = [sys.executable, "-m", "kernel", "pipeline", "run", options.job]
    for name in ("journal", "out", "history", "alerts", "master"):
        value = getattr(options, name)
        if value:
            command += [f"--{name}", value]
    for option, values in (("--set", options.settings), ("--read", options.read)):
        for text in texts_of(values):
            command += [option, text]
    return command


def texts_of(values: Mapping[str, Any]) -> list[str]:
    """Return ``NAME=VALUE`` texts; what is no text is JSON, as the command line has it."""
    return [
        f"{name}={value if isinstance(value, str) else msgspec.json.encode(value).decode()}"
        for name, value in values.items()
    ]
