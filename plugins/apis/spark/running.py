"""Running a streaming query until it ends or somebody stops it, and a session until it, or its JVM, ends."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from kernel.contracts.errors import KernelError
from plugins.apis.spark.complaints import complaint

POLL = 0.5
"""Seconds between two looks whether to stop."""


@contextmanager
def stopped_after(spark: Any) -> Iterator[Any]:
    """Stop a session at the end.  ``KernelError`` if its JVM has ended before: killed, perhaps, for want of memory."""
    from py4j.protocol import Py4JError, Py4JJavaError

    gone = (Py4JError, ConnectionError)
    try:
        yield spark
    except gone as error:
        if isinstance(error, Py4JJavaError):
            raise
        raise KernelError(f"the JVM of Spark has ended: {error}") from error
    finally:
        with suppress(*gone):
            spark.stop()


def run_until_stopped(query: Any, on_look: Callable[[], object] = lambda: None) -> None:
    """Let a query run until it ends, or SIGINT or SIGTERM comes; then stop it.  ``KernelError`` if it failed.

    For the main thread.  A signal only sets a flag: an exception in the middle of a conversation with the JVM would leave
    its answer for whoever asks next.  ``on_look`` is called twice a second.
    """
    from pyspark.errors import StreamingQueryException

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
    if query.exception() is not None:
        raise KernelError(complaint(str(query.exception())))
