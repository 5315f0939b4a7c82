"""Checks that what an application gives as a body can be sent."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NoReturn

from kernel.contracts.message import Buffer, Message

_BLOCK = 128
# Raises ``struct.error`` unless all arguments are bytes or bytearrays, and copies nothing of them: 4 ns for
# each body, where a list of their types takes 14.
_check_block = struct.Struct("0s" * _BLOCK).pack


def checked(body: Any) -> Buffer:
    """Return the body as a buffer of bytes, without a copy; ``TypeError`` if it is not one."""
    if type(body) in (bytes, bytearray):
        return body  # type: ignore[no-any-return]
    # ``len`` of such a view is its size in bytes, which batches and encoders rely on. Views of larger items,
    # or of several dimensions, are cast below.
    if type(body) is memoryview and body.itemsize == 1 == body.ndim and body.c_contiguous:
        return body
    if isinstance(body, str):
        _refuse(body)
    try:
        # Accepts whatever has contiguous memory: ``array.array``, a NumPy array, a view of larger items.
        return memoryview(body).cast("B")
    except TypeError:
        _refuse(body)


def all_checked(bodies: Sequence[Any]) -> Sequence[Buffer]:
    """Return the bodies as ``checked`` does; the same sequence if all are bytes or bytearrays."""
    rest = bodies
    if len(bodies) >= _BLOCK and type(bodies) in (list, tuple):
        whole = len(bodies) // _BLOCK * _BLOCK
        try:
            for at in range(0, whole, _BLOCK):
                _check_block(*bodies[at : at + _BLOCK])
        except struct.error:
            return list(map(checked, bodies))
        rest = bodies[whole:]
    kinds = list(map(type, rest))
    if kinds.count(bytes) != len(kinds) and set(kinds) - {bytes, bytearray}:
        return list(map(checked, bodies))
    return bodies


def _refuse(body: Any) -> NoReturn:
    if isinstance(body, memoryview):
        raise TypeError("a body has to be contiguous memory; this view has gaps: send bytes(view)")
    what = "send_message sends it" if isinstance(body, Message) else "encode it first"
    raise TypeError(
        f"a body is bytes, or anything with the buffer protocol, not {type(body).__name__}: {what}"
    )
