"""Dialling: from an address to a connected wire."""

from __future__ import annotations

import ssl

from kernel.hosting.address import SOCKET_TRANSPORTS, Address, parse_address
from kernel.hosting.connecting import connect
from kernel.hosting.tls import client_context, handshake
from kernel.hosting.wire import PlainWire, TlsWire, Wire
from plugins.engines.amqp_client.connect_options import ConnectOptions


class Dialling:
    """The addresses of one link, in turn."""

    def __init__(self, options: ConnectOptions) -> None:
        self.addresses = [parse_address(text, SOCKET_TRANSPORTS, "amqp") for text in options.addresses]
        self._timeout = options.connect_timeout
        self._server_name = options.tls.server_name
        self._tls: ssl.SSLContext | None = None
        if any(address.transport == "tls" for address in self.addresses):
            self._tls = client_context(options.tls)

    async def connect(self, address: Address) -> Wire:
        """Return a wire; ``ConnectionLost`` says why there is none."""
        connected = await connect(address, self._timeout)
        if address.transport != "tls":
            return PlainWire(connected)
        assert self._tls is not None
        name = self._server_name or address.host
        wrapped = await handshake(
            connected, self._tls, server_side=False, server_name=name, seconds=self._timeout
        )
        return TlsWire(wrapped)
