"""REP: a question comes, and then its answer goes back."""

from __future__ import annotations

from typing import ClassVar

from kernel.contracts.message import Batch, Buffer, Envelope
from plugins.apis.sockets.end import End
from plugins.apis.sockets.errors import NotSupported, WrongState
from plugins.apis.sockets.options import Values
from plugins.apis.sockets.patterns.base import Pattern, batch_of_parts


class Rep(Pattern):
    """REP.  The answer goes to whoever has asked, if it is still there."""

    kind: ClassVar[str] = "REP"
    router: str = "reply"
    alike: ClassVar[bool] = False
    turns: ClassVar[bool] = True

    def __init__(self, end: End, values: Values, engine: str) -> None:
        super().__init__(end, values, engine)
        self._question: Envelope | None = None

    def before_sending(self) -> None:
        """Refuse before a question."""
        if self._question is None:
            raise WrongState("this REP has no question to answer: receive first")

    def send_parts(self, parts: tuple[Buffer, ...], timeout: float | None) -> None:
        """Answer."""
        self.before_sending()
        question = self._question
        assert question is not None
        self.end.look()
        answer = batch_of_parts(parts, question)
        # Without the one who asked there is nobody to wait for.
        if self.end.port.wants(answer):
            self.end.send(answer, timeout)
        self._question = None

    def send_batch(self, batch: Batch, timeout: float | None) -> None:
        """Refuse."""
        raise NotSupported("a REP answers one question at a time; use ROUTER")

    def may_send(self) -> bool:
        """Whether it is the turn to answer."""
        return self._question is not None

    def before_receiving(self) -> None:
        """Refuse before the answer."""
        if self._question is not None:
            raise WrongState("this REP has received a question, and has to send the answer first")

    def received(self, envelope: Envelope) -> None:
        """The next one is the answer."""
        self._question = envelope
