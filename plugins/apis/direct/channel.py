"""Direct channel: connects to one peer, or accepts one, and gives the application the conversation.

There is no thread and no port of the kernel: the application's thread reads and writes the socket itself
(``kernel/hosting/blocking_host.py``).  The kernel only closes it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernel.contracts.errors import ConnectionLost
from kernel.contracts.kinds import Side
from kernel.hosting.address import Address, parse_address
from kernel.hosting.blocking_host import BlockingHost
from kernel.hosting.listener import listen_unix
from plugins.apis.direct.options import DirectOptions


class DirectChannel(BlockingHost):
    """A ``BlockingHost`` that belongs to a kernel, and ends with it."""

    def kernel_closed(self, reason: str) -> None:
        """Called by the kernel, from any thread: wake the thread that waits in a read."""
        # Before the wake-up: the next send looks at it.
        self._lost = self._lost or reason
        # A shutdown makes a blocking ``recv`` in another thread return end-of-file.  To close the descriptor
        # would not wake that thread, and its number could be reused while the thread still reads from it.
        try:
            self._socket.shutdown(socket.SHUT_RD)
        except OSError:  # not connected any more
            pass

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called; the kernel then forgets the channel."""
        return self._socket.fileno() < 0

    def dispose(self) -> None:
        """Called by the kernel when none of its threads is left."""
        self.close()


def open_direct(
    make_protocol: Callable[[str, dict[str, Any], Side], Any],
    name: str,
    options: DirectOptions,
    on_listening: Callable[[str], object] | None = None,
) -> DirectChannel:
    """Return a channel to one peer.  Raises ``ConnectionLost``, with the reason, if none can be had in time.

    ``on_listening`` is called with the address once a listener listens; with port 0 it has the real port.
    """
    address = parse_address(options.address, ("tcp", "unix"))
    try:
        if options.mode == "listen":
            connected = _accept(address, options.timeout, on_listening)
        else:
            connected = _connect(address, options.timeout)
    except OSError as error:
        raise ConnectionLost(f"{name!r}: no connection on {address}: {error}") from error
    # Each ``send`` is a separate write.  Nagle's algorithm would keep a second small one back until the peer
    # has acknowledged the first.
    if connected.family != socket.AF_UNIX:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        side: Side = "server" if options.mode == "listen" else "client"
        # Heartbeats are off: between two calls of the application nobody would send them, and the peer would
        # end an idle connection.
        protocol = make_protocol(address.protocol, {"heartbeat": 0, **options.protocol}, side)
        return DirectChannel(connected, protocol, str(address), options.timeout)
    except BaseException:
        connected.close()
        raise


def _connect(address: Address, timeout: float) -> socket.socket:
    if address.transport == "tcp":
        return socket.create_connection((address.host or "localhost", address.port), timeout)
    connected = socket.socket(socket.AF_UNIX)
    connected.settimeout(timeout)
    connected.connect(address.place)
    return connected


def _accept(address: Address, timeout: float, on_listening: Callable[[str], object] | None) -> socket.socket:
    if address.transport == "tcp":
        listener = socket.create_server((address.host, address.port))
        where = f"{address.protocol}+tcp://{address.host}:{listener.getsockname()[1]}"
    else:
        listener = listen_unix(address.place, 1)
        where = str(address)
    try:
        with listener:
            listener.settimeout(timeout)
            if on_listening is not None:
                on_listening(where)
            return listener.accept()[0]
    finally:
        # Also when nobody has come: a file that stays behind makes the next attempt find the address in use.
        if address.transport == "unix":
            Path(address.place).unlink(missing_ok=True)
