"""Method: the base of the generated classes in this folder."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

import msgspec

Sender: TypeAlias = Literal["client", "server", "both"]


class Method(msgspec.Struct, frozen=True, kw_only=True):
    """One method with its arguments.  ``encode`` and ``decode`` work on the payload of a method frame."""

    name: ClassVar[str] = ""
    """As in the specification: ``basic.publish``."""
    class_id: ClassVar[int] = 0
    method_id: ClassVar[int] = 0
    sent_by: ClassVar[Sender] = "both"
    has_content: ClassVar[bool] = False
    answers: ClassVar[tuple[str, ...]] = ()
    """The names of the methods that answer this one; empty for an asynchronous one."""

    def encode(self) -> bytes:
        """Return the payload: class id, method id and arguments."""
        raise NotImplementedError

    @classmethod
    def decode(cls, payload: bytes) -> Method:
        """Decode the payload of a method frame that has the ids of this class.

        Raises ``MalformedField``, ``IndexError`` or ``struct.error`` if it is too short, too long or
        malformed; the caller answers with 502 (syntax error).
        """
        raise NotImplementedError
