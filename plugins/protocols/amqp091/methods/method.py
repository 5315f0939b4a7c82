"""Method: what the generated classes of this folder have in common."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

import msgspec

Sender: TypeAlias = Literal["client", "server", "both"]


class Method(msgspec.Struct, frozen=True, kw_only=True):
    """One method with its arguments.  ``encode`` and ``decode`` work on the payload of a method frame."""

    name: ClassVar[str] = ""
    """As people write it: ``basic.publish``."""
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
        """Read the payload of a method frame whose ids are those of this class.

        Raises ``MalformedField``, ``IndexError`` or ``struct.error`` when it is too short, too long or
        wrong: the caller answers with 502 (syntax error).
        """
        raise NotImplementedError
