"""Runs streaming queries until they end or a signal stops them, and ends Spark sessions."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from kernel.contracts.errors import KernelError
from plugins.apis.spark.complaints import complaint

POLL = 0.5
"""Seconds between two checks of whether a signal has come."""


@contextmanager
def stopped_after(spark: Any) -> Iterator[Any]:
    """Stop a session at the end.

    Raises ``KernelError`` if its JVM has ended before, for example because the system killed it for lack of
    memory.
    """
    from py4j.protocol import Py4JError, Py4JJavaError

    gone = (Py4JError, ConnectionError)
    try:
        yield spark
    except gone as error:
        # An exception of Java's that was passed on: the JVM lives.
        if isinstance(error, Py4JJavaError):
            raise
        raise KernelError(f"the JVM of Spark has ended, perhaps for lack of memory: {error}") from error
    finally:
        with suppress(*gone):
            spark.stop()


def run_until_stopped(query: Any, on_look: Callable[[], object] = lambda: None) -> None:
    """Let a query run until it ends, or until SIGINT or SIGTERM; then stop it.

    Raises ``KernelError`` if it failed.

    For the main thread, the only one that may set signal handlers.  ``on_look`` is called twice a second.
    """
    from pyspark.errors import StreamingQueryException

    # The signal handler only sets a flag.  An exception in the middle of a call of the JVM would leave the
    # answer in the connection, and the next call would read it as its own.
    stopping = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: stopping.set()) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        while not stopping.is_set() and not query.awaitTermination(POLL):
            on_look()
        query.stop()
    except StreamingQueryException as error:
        raise KernelError(complaint(str(error))) from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    # A query that fails while it is being stopped raises nothing, but has an exception.
    if query.exception() is not None:
        raise KernelError(complaint(str(query.exception())))
