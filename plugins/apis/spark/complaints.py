"""Reduces Spark's error messages to one line for the user.

Spark wraps a message in tracebacks of Python and of the JVM, which are about its internals.  Other exceptions
are not changed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from kernel.contracts.errors import KernelError

_OURS = re.compile(r"^(?:(?:kernel|plugins)(?:\.\w+)+: |\w+Error: (?=\[Errno ))(.+)$", re.MULTILINE)
"""The last line of a Python traceback, if the error is one of the kernel's or of the operating system."""
_CONDITION = re.compile(r"\[[A-Z][A-Z0-9_.]+\] ")
"""The name of an error condition of Spark's, such as ``[DIVIDE_BY_ZERO]``; its sentence comes after it."""
_STATE = re.compile(r"\s*SQLSTATE: \w{5}")
_INSIDES = re.compile(
    r"; line \d+ pos \d+;\n|;\n['+ ]|\n\s*at |\n+JVM stacktrace|\n+Driver stacktrace|\n=== Streaming Query"
)
"""Where a message of Spark's ends and its internals begin: a plan, a stack trace, the state of a query."""


@contextmanager
def one_line_errors(who: str = "") -> Iterator[None]:
    """Turn Spark's exceptions into a ``KernelError`` with one line, which begins with ``who``.

    Spark's logger for failed queries is silenced, since it would print the same message again.
    """
    from pyspark.errors import PySparkException

    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    try:
        yield
    except PySparkException as error:
        raise KernelError(f"{who}{complaint(str(error))}") from error


def complaint(text: str) -> str:
    """Return the essential line of an error of Spark's.

    That is the message of the kernel's own exception if there is one, otherwise Spark's error condition and
    its sentence.
    """
    # The last one each time: Spark wraps an error in others, and the cause comes last.
    ours = _OURS.findall(text)
    if ours:
        return _STATE.sub("", ours[-1]).strip()
    text = _INSIDES.split(text, maxsplit=1)[0]
    conditions = [found.start() for found in _CONDITION.finditer(text)]
    return _STATE.sub("", text[conditions[-1] :] if conditions else text).strip()
