"""What an engine's failure is called in logs: its type, its text, and where it was raised."""

from __future__ import annotations

import sys
import traceback

from kernel.contracts.errors import KernelError

# The place in these would say little: what called them is what somebody can mend.
_LIBRARIES = frozenset({*sys.stdlib_module_names, "trio", "outcome", "msgspec", "greenlet"})


def described(error: BaseException) -> str:
    """Return type and text of an exception, and the place, unless the text says what to do by itself."""
    text = f"{type(error).__name__}: {error}"
    # Errors of the kernel, and of files and sockets, are for operators: their texts name the file or the
    # peer.  Any other is probably a mistake in an engine.
    if isinstance(error, KernelError | OSError):
        return text
    place = _place(error)
    return f"{text} ({place})" if place else text


def traced(error: BaseException) -> str:
    """Return the traceback of an exception."""
    return "".join(traceback.format_exception(error)).rstrip()


def _place(error: BaseException) -> str:
    """Return the last place that is not in a library; empty if there is none."""
    found = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] not in _LIBRARIES:
            found = f"{frame.f_code.co_filename}, line {line}, in {frame.f_code.co_name}"
    return found
