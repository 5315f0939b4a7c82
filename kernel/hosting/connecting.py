"""Connecting: opens a connection to an address, and sets the socket options of a connection."""

from __future__ import annotations

import re
import socket

import trio

from kernel.contracts.durations import in_seconds
from kernel.contracts.errors import ConnectionLost
from kernel.hosting.address import Address

_OF_TRIO = re.compile(r"Error connecting to \('([^']+)', .*\): (.+)")
"""What trio makes of the text of an error: it puts the address in front."""

_CONGESTION: int | None = getattr(socket, "TCP_CONGESTION", None)
"""The option that names the congestion control of a connection.  Only Linux has it."""
_PACES = (b"bbr",)
"""Congestion controls that pace: they send at a rate that they have measured, one segment after another."""
_DOES_NOT_PACE = b"reno"
"""Every Linux has it, and every user may choose it (tcp(7))."""


async def connect(address: Address, seconds: float) -> socket.socket:
    """Return a connected socket; ``ConnectionLost`` if it fails or takes longer than ``seconds``."""
    try:
        with trio.fail_after(seconds):
            if address.transport == "unix":
                stream = await trio.open_unix_socket(address.place)
            else:
                stream = await trio.open_tcp_stream(address.host or "localhost", address.port)
    except trio.TooSlowError:
        raise ConnectionLost(f"no connection to {address} within {in_seconds(seconds)}") from None
    except OSError as error:
        # trio tries all addresses of a name and puts their errors into a group.  The first one is usually the
        # one that explains.
        causes = error.__cause__.exceptions if isinstance(error.__cause__, ExceptionGroup) else ()
        cause = causes[0] if causes else error
        said = getattr(cause, "strerror", None) or str(cause)
        where = str(address)
        if trios := _OF_TRIO.fullmatch(said):
            tried, said = trios.groups()
            # Of a name it is of use which of its addresses it was.
            where = where if tried == address.host else f"{where} ({tried})"
        raise ConnectionLost(f"cannot connect to {where}: {said}") from None
    theirs = stream.socket
    # Taken out of the socket object of trio: the connection reads and writes without trio.
    connected = socket.socket(theirs.family, theirs.type, theirs.proto, fileno=theirs.detach())
    prepare(connected)
    return connected


def prepare(connected: socket.socket) -> None:
    """Make a socket one that does not block, with the options of every connection."""
    connected.setblocking(False)
    set_options(connected)
    if is_paced(connected):
        forgo_pacing(connected)


def set_options(sock: socket.socket) -> None:
    """Set the options of every connection: no Nagle algorithm (we make batches ourselves), and keep-alive."""
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def is_paced(sock: socket.socket) -> bool:
    """Whether the system paces what is written, on this connection or on those that are accepted here."""
    if _CONGESTION is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    try:
        return sock.getsockopt(socket.IPPROTO_TCP, _CONGESTION, 16).startswith(_PACES)
    # Closed meanwhile by who has bound it.
    except OSError:
        return False


def forgo_pacing(connected: socket.socket) -> None:
    """Write as fast as the peer reads, if it is on this machine.

    Pacing protects the queues between two machines.  Here there are none, and the timer that it starts for
    each segment costs as much as all the rest (docs/decisions/0048-no-pacing-on-one-machine.md).
    """
    try:
        # Also with an address that others may reach: to its own addresses the system takes the short way.
        if _CONGESTION is not None and connected.getpeername()[0] == connected.getsockname()[0]:
            connected.setsockopt(socket.IPPROTO_TCP, _CONGESTION, _DOES_NOT_PACE)
    except OSError:
        # The peer has gone: whoever reads or writes finds out.
        pass
