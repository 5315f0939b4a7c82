"""Errors as pyzmq raises them: its classes, with libzmq's numbers and our texts."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from zmq.error import Again, ContextTerminated, ZMQError

from kernel.contracts.errors import KernelClosed, KernelError, WouldBlock
from plugins.apis.sockets.errors import EFSM, ETERM

_TEXTS = {
    EFSM: "Operation cannot be accomplished in current state",
    EFSM + 1: "The protocol is not compatible with the socket type",
    ETERM: "Context was terminated",
    ETERM + 1: "No thread available",
}
"""Of the numbers that only ØMQ has."""

_last = threading.local()

P = ParamSpec("P")
T = TypeVar("T")


def strerror(number: int) -> str:
    """Return the text of an error number."""
    return _TEXTS.get(number) or os.strerror(number)


def zmq_errno() -> int:
    """Return the number of the last error of this thread."""
    return getattr(_last, "number", 0)


def failure(number: int, text: str = "") -> ZMQError:
    """Return the error that pyzmq raises for a number."""
    _last.number = number
    if number == errno.EAGAIN:
        return Again()
    if number == ETERM:
        return ContextTerminated()
    return ZMQError(number, text or strerror(number))


def translated(error: Exception) -> ZMQError:
    """Return the error that pyzmq raises in place of one of ours."""
    if isinstance(error, WouldBlock):
        return failure(errno.EAGAIN)
    if isinstance(error, KernelClosed):
        return failure(ETERM)
    number = getattr(error, "errno", None) or errno.EINVAL
    return failure(number, f"{strerror(number)}: {error}")


def translating(call: Callable[P, T]) -> Callable[P, T]:
    """Have a function raise pyzmq's errors."""

    @wraps(call)
    def calling(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(*args, **kwargs)
        except (KernelError, OSError) as error:
            if isinstance(error, ZMQError):
                raise
            raise translated(error) from error

    return calling
