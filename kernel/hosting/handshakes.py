"""Handshakes: make a wire of a connected socket: plain, with TLS, with WebSocket, or with both.

All engines use this, for both sides of a connection.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable

from kernel.hosting.address import Address
from kernel.hosting.tls import RenewedContext, client_context, handshake, server_context
from kernel.hosting.tls_options import TlsOptions
from kernel.hosting.waiting import InTrio, Waits
from kernel.hosting.web_options import WebOptions
from kernel.hosting.wire import PlainWire, TlsWire, Wire

_log = logging.getLogger(__name__)


class Handshakes:
    """The handshakes of one address, for one side.

    The constructor raises ``ValueError`` for wrong options and ``OSError`` for a certificate that cannot be
    read.  ``seconds``: how long one handshake may take.  ``subprotocols``: WebSocket's names of the protocol,
    for which ``web`` may name others.  ``takes_text``: whether it allows text messages of WebSocket.
    ``keeps_messages``: whether messages of WebSocket have a meaning for it (``MessageWire``).
    ``waits``: how it waits; None: as a task of trio.
    """

    def __init__(
        self,
        address: Address,
        *,
        server_side: bool,
        tls: TlsOptions,
        seconds: float,
        web: WebOptions | None = None,
        subprotocols: tuple[str, ...] = (),
        takes_text: bool = True,
        keeps_messages: bool = False,
        waits: Waits | None = None,
    ) -> None:
        self._address = address
        self._server_side = server_side
        self._tls_options = tls
        self._seconds = seconds
        self._waits = waits or InTrio()
        self.report: Callable[[str, str], None] = _log_it
        """Called with the kind of an event and its text when the files of ``tls`` have changed."""
        self._context: RenewedContext | None = None
        self._web = None
        # Now and not at the first connection, so that a wrong certificate fails the engine and is reported.
        if address.transport in ("tls", "wss"):
            self._context = self._make_context()
        if address.transport in ("ws", "wss"):
            # Only here: wsproto is an extra, which plain addresses do not need.
            from kernel.hosting.web_socket import WebHandshake

            self._web = WebHandshake(
                address,
                web or WebOptions(),
                server_side=server_side,
                subprotocols=subprotocols,
                takes_text=takes_text,
                keeps_messages=keeps_messages,
            )

    def share(self, other: Handshakes) -> None:
        """Let clients of WebSocket choose by the path: one port has the paths of several addresses.

        TLS, which comes first, is that of this object.
        """
        assert self._web is not None
        assert other._web is not None
        self._web.share(other._web)

    @property
    def needed(self) -> bool:
        """Whether there is a handshake.  If not, ``shake`` returns at once."""
        return self._context is not None or self._web is not None

    async def shake(self, connected: socket.socket) -> Wire:
        """Do the handshakes; return the wire.  If they fail, the socket is closed: ``ConnectionLost``."""
        # TLS first: for ``wss`` the HTTP request of the WebSocket is encrypted already.
        wire: Wire = PlainWire(connected) if self._context is None else await self._shake_tls(connected)
        return wire if self._web is None else await self._web.shake(wire, self._seconds, self._waits)

    async def start_tls(self, connected: socket.socket) -> Wire:
        """Begin TLS on a socket in the middle of a conversation.  It need not be in the address."""
        # Made when it is first needed: an engine whose protocol never upgrades needs no certificate.
        if self._context is None:
            self._context = self._make_context()
        return await self._shake_tls(connected)

    async def _shake_tls(self, connected: socket.socket) -> TlsWire:
        assert self._context is not None
        # For SNI and for the check of the certificate.  An address without a host dials localhost.
        name = (
            None if self._server_side else self._tls_options.server_name or self._address.host or "localhost"
        )
        return TlsWire(
            await handshake(
                connected,
                self._context.current(),
                self._waits,
                server_side=self._server_side,
                server_name=name,
                seconds=self._seconds,
            )
        )

    def _make_context(self) -> RenewedContext:
        make = server_context if self._server_side else client_context
        return RenewedContext(make, self._tls_options, self._tell)

    def _tell(self, what: str, text: str) -> None:
        # ``report`` may be set after the context is made.
        self.report(what, text)


def _log_it(what: str, text: str) -> None:
    _log.warning("%s: %s", what, text)
