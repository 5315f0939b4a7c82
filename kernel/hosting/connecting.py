"""Connecting: opens a connection to an address, and sets the socket options that all connections have."""

from __future__ import annotations

import socket

import trio

from kernel.contracts.errors import ConnectionLost
from kernel.hosting.address import Address


async def connect(address: Address, seconds: float) -> socket.socket:
    """Return a connected socket; ``ConnectionLost`` if it fails or takes longer than ``seconds``."""
    try:
        with trio.fail_after(seconds):
            if address.transport == "unix":
                stream = await trio.open_unix_socket(address.place)
            else:
                stream = await trio.open_tcp_stream(address.host or "localhost", address.port)
    except trio.TooSlowError:
        raise ConnectionLost(f"no connection to {address} within {seconds} s") from None
    except OSError as error:
        # trio tries all addresses of a name and puts their errors into a group.  The first one is usually the
        # one that explains.
        causes = error.__cause__.exceptions if isinstance(error.__cause__, ExceptionGroup) else ()
        cause = causes[0] if causes else error
        raise ConnectionLost(
            f"cannot connect to {address}: {getattr(cause, 'strerror', None) or cause}"
        ) from None
    theirs = stream.socket
    # Taken out of the socket object of trio: the connection reads and writes without trio.
    connected = socket.socket(theirs.family, theirs.type, theirs.proto, fileno=theirs.detach())
    prepare(connected)
    return connected


def prepare(connected: socket.socket) -> None:
    """Make a socket one that does not block, with the options of every connection."""
    connected.setblocking(False)
    set_options(connected)


def set_options(sock: socket.socket) -> None:
    """Set the options of every connection: no Nagle algorithm (we make batches ourselves), and keep-alive."""
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
