"""What Spark says of a mistake, as a line for who has made it.

It comes with the tracebacks of two languages around it, which are about Spark's own insides.  A programme's own errors are none
of this: they stay as they are.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from kernel.contracts.errors import KernelError

_OURS = re.compile(r"^(?:(?:kernel|plugins)(?:\.\w+)+: |\w+Error: (?=\[Errno ))(.+)$", re.MULTILINE)
"""The last line of a traceback of Python, where the error is one of ours, or the system's."""
_CONDITION = re.compile(r"\[[A-Z][A-Z0-9_.]+\] ")
_STATE = re.compile(r"\s*SQLSTATE: \w{5}")
_INSIDES = re.compile(
    r"; line \d+ pos \d+;\n|;\n['+ ]|\n\s*at |\n+JVM stacktrace|\n+Driver stacktrace|\n=== Streaming Query"
)


@contextmanager
def told(who: str = "") -> Iterator[None]:
    """Raise ``KernelError`` for what Spark has to complain about, ``who`` in front; its log is not to say it once more."""
    from pyspark.errors import PySparkException

    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    try:
        yield
    except PySparkException as error:
        raise KernelError(f"{who}{complaint(str(error))}") from error


def complaint(text: str) -> str:
    """Return what an error of Spark's is about: what the kernel's own code said, or Spark's condition with its sentence."""
    ours = _OURS.findall(text)
    if ours:
        return _STATE.sub("", ours[-1]).strip()
    text = _INSIDES.split(text, maxsplit=1)[0]
    conditions = [found.start() for found in _CONDITION.finditer(text)]
    return _STATE.sub("", text[conditions[-1] :] if conditions else text).strip()
