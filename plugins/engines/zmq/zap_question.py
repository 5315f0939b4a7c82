"""A question to a handler of ZAP (27/ZAP): a REP or ROUTER of this kernel at a place of ``inproc``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kernel.contracts.engine import Host
from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import batch_of
from kernel.hosting.inproc_host import pipe_pair
from plugins.protocols.zmtp.zap import ZapReply, ZapRequest, reply_of

_HANDLERS = ("REP", "ROUTER")
"""Types of sockets that answer questions."""


class ZapQuestion:
    """Asks over a connection of its own, as libzmq does.

    ``answered`` is called once, with the answer or with what is wrong with it, in the thread of ``host``; not
    after ``close``.
    """

    def __init__(
        self,
        host: Host,
        place: str,
        request: ZapRequest,
        answered: Callable[[ZapReply | str], Any],
    ) -> None:
        self._answered: Callable[[ZapReply | str], Any] | None = answered
        there, accept, kind, _ = host.rendezvous[key_of_place(place)]
        self._out, self._back = pipe_pair(place, host, there)
        # Before the handler gets the pipe: it is in another thread, and may answer at once.
        self._back.on_ready = self._look
        if kind not in _HANDLERS:
            # Not from within the constructor: the asker does not have this object yet, and could not close
            # it. 27/ZAP names the two types.
            host.soon(lambda: self._end(f"a {kind} is bound at {place}, and questions go to REP or ROUTER"))
            return
        there.post(lambda: accept(self._out, self._back, "REQ", b""))
        # The empty part is that of a REQ.
        # Behind the post, and in its own pipe: the handler finds it when it plugs in.
        self._out.write(batch_of([(b"", *request.frames())], multipart=True))

    def close(self) -> None:
        """Do not wait for the answer any more."""
        if self._answered is not None:
            self._answered = None
            self._out.end()

    def _end(self, answer: ZapReply | str) -> None:
        answered = self._answered
        self.close()
        if answered is not None:
            answered(answer)

    def _look(self) -> None:
        """Take the answer.  The pipe posts this call."""
        for batch in self._back.take():
            for parts in batch.bodies if batch.multipart else zip(batch.bodies):
                # A second answer ends up here, too, and is dropped: ``_end`` has forgotten whom to tell.
                self._end(_read(parts))
        # What came between the two looks is posted again.
        if self._back.ended and not self._back.more():
            self._end("the handler has gone without an answer")


def key_of_place(place: str) -> str:
    """Return the name under which the rendezvous of a kernel has a place of ``inproc``."""
    return f"zmq {place}"


def _read(parts: Sequence[Any]) -> ZapReply | str:
    """Return the answer, or what is wrong with it."""
    try:
        if parts[0]:
            raise RemoteProtocolError("an answer of ZAP without the empty part before it")
        return reply_of(parts[1:])
    except RemoteProtocolError as error:
        return str(error)
