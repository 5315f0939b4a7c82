"""The buffers of connections, and connecting."""

from __future__ import annotations

import socket

from kernel.hosting import connecting
from kernel.hosting.address import Address
from plugins.engines.stream.options import StreamOptions


def set_buffers(connected: socket.socket, options: StreamOptions) -> None:
    """Set the buffer sizes of this engine."""
    if options.send_buffer:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, options.send_buffer)
    if options.receive_buffer:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.receive_buffer)


async def connect(address: Address, options: StreamOptions) -> socket.socket:
    """Return a connected socket.  Raises ``ConnectionLost`` with the reason."""
    connected = await connecting.connect(address, options.connect_timeout)
    set_buffers(connected, options)
    return connected
