"""REQ: a question, and then its answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from kernel.contracts.message import Batch, Buffer, Envelope
from plugins.apis.sockets.end import End
from plugins.apis.sockets.errors import NotSupported, WrongState
from plugins.apis.sockets.options import Values
from plugins.apis.sockets.patterns.base import Pattern, batch_of_parts


class Req(Pattern):
    """REQ.  Only the answer to the last question is received."""

    kind: ClassVar[str] = "REQ"
    router: str = "round-robin"
    alike: ClassVar[bool] = False
    turns: ClassVar[bool] = True
    asks: ClassVar[bool] = True
    lends: ClassVar[bool] = True

    def __init__(self, end: End, values: Values, engine: str) -> None:
        super().__init__(end, values, engine)
        self._number = 0
        """Of the last envelope that was made."""
        end.incoming = self._answers

    def engine_options(self) -> Mapping[str, Any]:
        """Number the questions, if several may be open."""
        return {"correlate": self.values["req_correlate"] or self.values["req_relaxed"]}

    def before_sending(self) -> None:
        """Refuse before the answer."""
        if self.open is not None and not self.values["req_relaxed"]:
            raise WrongState("this REQ has asked, and has to receive the answer first (or see req_relaxed)")

    def next_question(self) -> Envelope:
        """Return a new one."""
        self._number += 1
        return Envelope(properties={"message_id": str(self._number)})

    def send_parts(self, parts: tuple[Buffer, ...], timeout: float | None) -> None:
        """Ask."""
        self.before_sending()
        # An envelope of its own: the answer comes under it, or under one that has the user in addition.
        envelope = self.next_question()
        self.end.send(batch_of_parts(parts, envelope), timeout)
        self.end.inbox.clear()
        self.open = envelope

    def send_batch(self, batch: Batch, timeout: float | None) -> None:
        """Refuse."""
        raise NotSupported("a REQ asks one question at a time; use DEALER, or a REQ for each question")

    def may_send(self) -> bool:
        """Whether it is the turn to ask, and a peer has room."""
        return (self.open is None or self.values["req_relaxed"]) and super().may_send()

    def _answers(self, batch: Batch) -> Batch | None:
        if batch.envelope is not self.open and not self._is_answer(batch.envelope):
            return None
        return batch if len(batch.bodies) == 1 else batch.slice(0, 1)

    def _is_answer(self, envelope: Envelope) -> bool:
        asked = self.open
        # The same number under another envelope, which says who the peer is.
        return asked is not None and envelope.properties.get("message_id") == asked.properties["message_id"]

    def before_receiving(self) -> None:
        """Refuse before a question."""
        if self.open is None:
            raise WrongState("this REQ has not asked, so no answer can come: send first")
