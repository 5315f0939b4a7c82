"""What may be a body."""

from __future__ import annotations

from typing import Any, NoReturn

from kernel.contracts.message import Buffer


def checked(body: Any) -> Buffer:
    """Return a body as something that can be written; ``TypeError`` for what cannot."""
    if type(body) in (bytes, bytearray) or (type(body) is memoryview and body.itemsize == 1 == body.ndim):
        return body  # type: ignore[no-any-return]
    if isinstance(body, str):
        _refuse(body)
    try:
        return memoryview(body).cast("B")
    except TypeError:
        _refuse(body)


def _refuse(body: Any) -> NoReturn:
    raise TypeError(
        f"a body is bytes, or anything with the buffer protocol, not {type(body).__name__}: encode it first"
    )
