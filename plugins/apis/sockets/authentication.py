"""Who is let in to the sockets of a context: a function of the application decides.

It is asked in ZAP, as libzmq asks a handler.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeAlias

from kernel.contracts.errors import KernelClosed, KernelError, RemoteProtocolError
from kernel.contracts.protocol import Login
from plugins.apis.sockets.errors import SocketClosed
from plugins.apis.sockets.socket import Socket
from plugins.protocols.zmtp.zap import ACCEPTED, FAILED, REFUSED, ZapReply, login_of

Decide: TypeAlias = Callable[[Login], str | None]
"""Returns the name of the user to let it in; None, or a ``KernelError`` that says why, refuses."""


def serve(rep: Socket, decide: Decide) -> None:
    """Answer questions in a thread, until the socket or its context is closed."""

    def answer_all() -> None:
        while True:
            try:
                question = rep.recv_multipart()
                rep.send_multipart(_answer(question, decide).frames())
            except (KernelClosed, SocketClosed):
                return

    threading.Thread(target=answer_all, name="authentication", daemon=True).start()


def _answer(question: list[bytes], decide: Decide) -> ZapReply:
    request = b""
    try:
        request, login = login_of(question)
        user = decide(login)
    except RemoteProtocolError as error:
        return ZapReply(request=request, status=FAILED, text=str(error))
    except KernelError as error:
        return ZapReply(request=request, status=REFUSED, text=str(error))
    # The application's own fault: it is told in the report, and others can still log in.
    except Exception as error:
        return ZapReply(
            request=request, status=FAILED, text=f"the function that decides has raised {error!r}"
        )
    if user is None:
        return ZapReply(request=request, status=REFUSED, text="the function that decides has refused it")
    return ZapReply(request=request, status=ACCEPTED, text="OK", user=user)
