"""Socket options of connections, and connecting."""

from __future__ import annotations

import socket

import trio

from kernel.contracts.errors import ConnectionLost
from kernel.hosting.address import Address
from plugins.engines.stream.options import StreamOptions


def prepare(connected: socket.socket, options: StreamOptions) -> None:
    """Set what every connection has: no Nagle (batches are ours to make), keep-alive, buffer sizes."""
    connected.setblocking(False)
    if connected.family in (socket.AF_INET, socket.AF_INET6):
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if options.send_buffer:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, options.send_buffer)
    if options.receive_buffer:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.receive_buffer)


async def connect(address: Address, options: StreamOptions) -> socket.socket:
    """Return a connected socket; ``ConnectionLost`` says why there is none."""
    try:
        with trio.fail_after(options.connect_timeout):
            if address.transport == "unix":
                stream = await trio.open_unix_socket(address.place)
            else:
                stream = await trio.open_tcp_stream(address.host or "localhost", address.port)
    except trio.TooSlowError:
        raise ConnectionLost(f"no connection to {address} within {options.connect_timeout} s") from None
    except OSError as error:
        causes = error.__cause__.exceptions if isinstance(error.__cause__, ExceptionGroup) else ()
        cause = causes[0] if causes else error
        raise ConnectionLost(
            f"cannot connect to {address}: {getattr(cause, 'strerror', None) or cause}"
        ) from None
    sock = stream.socket
    connected = socket.socket(sock.family, sock.type, sock.proto, fileno=sock.detach())
    prepare(connected, options)
    return connected
