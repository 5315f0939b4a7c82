"""Supervisor: runs an engine, and runs it again after a failure.  A failure ends nothing but the engine."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import trio

from kernel.contracts.durations import in_seconds
from kernel.contracts.engine import Engine, EngineEvent
from kernel.contracts.thread import NEVER_STARTED
from kernel.hosting.backoff import Backoff, BackoffOptions
from kernel.threads.failure import described, traced
from kernel.threads.host import EngineHost

START_LIMIT = 10.0
"""Seconds after which an engine that is still starting is reported, once."""


class EngineState(msgspec.Struct):
    """The state of an engine.  Written by its thread, read by any thread."""

    name: str
    kind: str = ""
    """Empty for an engine that code has made (``Kernel.host``)."""
    state: str = "starting"
    """``starting``, ``running``, ``failed`` (waiting for its next try), ``ended`` or ``stopped``."""
    address: str = ""
    failures: int = 0
    last_failure: str = ""
    next_try: float | None = None
    """Seconds between the failure and the next try."""
    engine: Engine | None = None
    running_since: float | None = None
    """When it last came up, by its thread's clock; None while it has not."""

    def came_up(self) -> bool:
        """Whether it is running, or has run and ended by itself, as a replay does."""
        return self.state == "running" or (self.state == "ended" and self.running_since is not None)


async def supervise(
    state: EngineState,
    make_engine: Callable[[], Engine],
    make_host: Callable[[trio.Nursery], EngineHost],
    report: Callable[[EngineEvent], object],
    policy: BackoffOptions,
) -> None:
    """Run the engine until it returns or is cancelled.  After a failure, wait and run it again."""
    backoff = Backoff(policy)
    while True:
        state.state = "starting"
        state.running_since = None
        failure = await _live_once(state, make_engine, make_host, report)
        # From here on operators find no engine to ask: its descriptors and ports are released.
        state.engine = None
        if failure is None:
            state.state = "ended"
            # Whoever waits until all engines are up waits for ever then.
            detail = "" if state.running_since is not None else NEVER_STARTED
            report(EngineEvent(engine=state.name, what="ended", detail=detail))
            return
        # An engine that never came up keeps its growing wait; one that ran long enough begins with the
        # shortest again.
        if state.running_since is not None:
            backoff.lasted(trio.current_time() - state.running_since)
        wait = backoff.next_wait()
        state.state, state.next_try = "failed", wait
        state.failures += 1
        state.last_failure = described(failure)
        report(
            EngineEvent(
                engine=state.name,
                what="failed",
                detail=state.last_failure,
                next_try=wait,
                trace=traced(failure),
            )
        )
        await trio.sleep(wait)


async def _live_once(
    state: EngineState,
    make_engine: Callable[[], Engine],
    make_host: Callable[[trio.Nursery], EngineHost],
    report: Callable[[EngineEvent], object],
) -> BaseException | None:
    """Run it once; return what it raised, None if it returned.  Cancellation passes through."""
    host: EngineHost | None = None
    try:
        async with trio.open_nursery() as nursery:
            host = make_host(nursery)
            # Inside the ``try``: a constructor that raises is a failure of the engine like any other, and is
            # tried again.
            engine = state.engine = make_engine()
            started = _Started(state, report, host)
            started.expect()

            async def live() -> None:
                await engine.run(host, task_status=started)
                # ``run`` has returned, so the engine has ended: its other tasks end, too.
                nursery.cancel_scope.cancel()

            nursery.start_soon(live)
    except BaseExceptionGroup as group:
        # The nursery wraps everything in a group. What is left without the cancellations is the failure. A
        # group that also has a ``KeyboardInterrupt`` or ``SystemExit`` is not an ``ExceptionGroup``: it is
        # not the engine's, and is passed on.
        failures = group.split(trio.Cancelled)[1]
        if failures is None or not isinstance(failures, ExceptionGroup):
            raise
        return _first(failures)
    except Exception as error:
        return error
    finally:
        if host is not None:
            # After the nursery has ended, so that no task uses what is released.
            host.release()
    # A callback that raised has cancelled the nursery (``EngineHost.fail``), which ends without an exception
    # then.
    return host.failure


def _first(group: ExceptionGroup[Exception]) -> Exception:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, ExceptionGroup) else error


class _Started:
    """The ``task_status`` that an engine is given."""

    def __init__(self, state: EngineState, report: Callable[[EngineEvent], object], host: EngineHost) -> None:
        self._state = state
        self._report = report
        self._host = host

    def expect(self) -> None:
        """Report the engine if it is not usable within ``START_LIMIT``.

        Not one that code has made: a link between processes is such an engine, and starts when the other
        process is up.
        """
        if self._state.kind:
            # A timer and not a task: a program may have many engines.
            self._host.set_timer(self._host.now() + START_LIMIT, self._warn, self)

    def started(self, address: str = "") -> None:
        """The engine is usable."""
        self._host.set_timer(None, self._warn, self)
        self._state.state = "running"
        self._state.address = address
        self._state.next_try = None
        self._state.running_since = trio.current_time()
        self._report(EngineEvent(engine=self._state.name, what="running", detail=address))

    def _warn(self) -> None:
        detail = (
            f"kind {self._state.kind!r}: still starting after {in_seconds(START_LIMIT)}: {NEVER_STARTED}, and "
            "the system is not up before"
        )
        self._report(EngineEvent(engine=self._state.name, what="warning", detail=detail))
