"""Socket options of connections, and connecting."""

from __future__ import annotations

import socket

from kernel.hosting import connecting
from kernel.hosting.address import Address
from plugins.engines.stream.options import StreamOptions


def prepare(connected: socket.socket, options: StreamOptions) -> None:
    """Set the usual socket options, and the buffer sizes of this engine."""
    connecting.prepare(connected)
    if options.send_buffer:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, options.send_buffer)
    if options.receive_buffer:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.receive_buffer)


async def connect(address: Address, options: StreamOptions) -> socket.socket:
    """Return a connected socket.  Raises ``ConnectionLost`` with the reason."""
    connected = await connecting.connect(address, options.connect_timeout)
    prepare(connected, options)
    return connected
