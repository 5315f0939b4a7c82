"""Dialling: from an address to a connected wire."""

from __future__ import annotations

from kernel.hosting.address import SOCKET_TRANSPORTS, Address, parse_address
from kernel.hosting.connecting import connect
from kernel.hosting.handshakes import Handshakes
from kernel.hosting.wire import Wire
from plugins.engines.amqp_client.connect_options import ConnectOptions


class Dialling:
    """The addresses of one link, in turn."""

    def __init__(self, options: ConnectOptions) -> None:
        self.addresses = [parse_address(text, SOCKET_TRANSPORTS, "amqp") for text in options.addresses]
        self._timeout = options.connect_timeout
        self._handshakes = {
            address: Handshakes(address, server_side=False, tls=options.tls, seconds=options.connect_timeout)
            for address in self.addresses
        }

    async def connect(self, address: Address) -> Wire:
        """Return a wire; ``ConnectionLost`` says why there is none."""
        return await self._handshakes[address].shake(await connect(address, self._timeout))
