"""REP: a question comes, and then its answer goes back."""

from __future__ import annotations

from typing import ClassVar

from kernel.contracts.message import Batch, Buffer, Envelope
from plugins.apis.sockets.errors import NotSupported, WrongState
from plugins.apis.sockets.patterns.base import Pattern, batch_of_parts


class Rep(Pattern):
    """REP.  The answer goes to whoever has asked, if it is still there."""

    kind: ClassVar[str] = "REP"
    router: str = "reply"
    alike: ClassVar[bool] = False
    turns: ClassVar[bool] = True
    answers: ClassVar[bool] = True
    lends: ClassVar[bool] = True

    def before_sending(self) -> None:
        """Refuse before a question."""
        if self.open is None:
            raise WrongState("this REP has no question to answer: receive first")

    def send_parts(self, parts: tuple[Buffer, ...], timeout: float | None) -> None:
        """Answer."""
        self.before_sending()
        question = self.open
        assert question is not None
        self.end.look()
        answer = batch_of_parts(parts, question)
        # Without the one who asked there is nobody to wait for.
        if self.end.port.wants(answer):
            self.end.send(answer, timeout)
        self.open = None

    def send_batch(self, batch: Batch, timeout: float | None) -> None:
        """Refuse."""
        raise NotSupported("a REP answers one question at a time; use ROUTER")

    def may_send(self) -> bool:
        """Whether it is the turn to answer."""
        return self.open is not None

    def before_receiving(self) -> None:
        """Refuse before the answer."""
        if self.open is not None:
            raise WrongState("this REP has received a question, and has to send the answer first")

    def opens(self, envelope: Envelope) -> Envelope | None:
        """Return the question: the next one is the answer."""
        return envelope
