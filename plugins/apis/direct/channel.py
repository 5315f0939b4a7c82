"""Direct channel: connects to one peer, or accepts one, and gives the application the conversation.

There is no thread and no port of the kernel: the application's thread reads and writes the socket itself
(``kernel/hosting/blocking_host.py``).  The kernel only closes it.
"""

from __future__ import annotations

import math
import select
import socket
from collections.abc import Callable
from typing import Any

import msgspec

from kernel.contracts.errors import ConnectionLost, LocalProtocolError
from kernel.contracts.kinds import Side
from kernel.contracts.protocol import StreamProtocol
from kernel.hosting.address import SOCKET_TRANSPORTS, WEB_TRANSPORTS, Address, parse_address
from kernel.hosting.blocking_host import BlockingHost
from kernel.hosting.connecting import prepare
from kernel.hosting.forking import FORKED, OfThisProcess, call_in_children
from kernel.hosting.handshakes import Handshakes
from kernel.hosting.listener import listen_on, peer_name
from kernel.hosting.waiting import InThread, finish
from plugins.apis.direct.options import DirectOptions

_LONGEST = 20 * 86_400.0
"""Seconds.  A longer limit is none: ``poll`` waits for 24 days at the most."""


class DirectChannel(BlockingHost, OfThisProcess):
    """A ``BlockingHost`` that belongs to a kernel, and ends with it."""

    def kernel_closed(self, reason: str) -> None:
        """Called by the kernel, from any thread: wake the thread that waits in a read."""
        # Before the wake-up: the next send looks at it.
        self._lost = self._lost or reason
        connected = self._wire.connected
        # A shutdown makes a blocking ``recv`` in another thread return end-of-file.  To close the descriptor
        # would not wake that thread, and its number could be reused while the thread still reads from it.
        try:
            if connected is not None:
                # Not ``connected.shutdown``: that of an SSLSocket drops the TLS state, which the reader uses.
                socket.socket.shutdown(connected, socket.SHUT_RD)
        except OSError:  # not connected any more
            pass

    def _forked(self) -> None:
        """This process is a child that was forked: the connection is its parent's, and goes on there."""
        self._lost = FORKED
        self._ready.drop()
        self._io.data = None
        self._stop_reading()
        # The child's descriptor only.
        self._wire.close()

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called; the kernel then forgets the channel."""
        return self._wire.fileno() < 0

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
    try:
        address = parse_address(options.address, (*SOCKET_TRANSPORTS, *WEB_TRANSPORTS))
    except ValueError as error:
        raise ValueError(f"{error}.  For another transport, use an engine and a native channel") from None
    side: Side = "server" if options.mode == "listen" else "client"
    timeout = options.timeout if options.timeout < _LONGEST else math.inf
    # Both raise for wrong options, so they come before the wait for a peer.
    protocol = _make_protocol(make_protocol, address.protocol, options.protocol, side)
    handshakes = Handshakes(
        address,
        server_side=side == "server",
        tls=options.tls,
        seconds=timeout,
        web=options.web,
        waits=InThread(),
    )
    if not isinstance(protocol, StreamProtocol):
        raise LocalProtocolError(
            f"{name!r}: {address.protocol!r} is no stream protocol, and a direct channel carries no other: "
            "use the engine kind of its plugin and a native channel"
        )
    try:
        if options.mode == "listen":
            connected, peer = _accept(address, timeout, on_listening)
        else:
            connected, peer = _connect(address, None if timeout == math.inf else timeout), str(address)
    except OSError as error:
        raise ConnectionLost(f"{name!r}: no connection on {address}: {error}") from error
    prepare(connected)
    try:
        wire = finish(handshakes.shake(connected))
    except ConnectionLost as error:  # the socket is closed
        raise ConnectionLost(f"{name!r}: no connection on {address}: {error}") from None
    try:
        channel = DirectChannel(
            wire, protocol, peer, timeout, lambda plain: finish(handshakes.start_tls(plain))
        )
    except LocalProtocolError as error:
        wire.close()
        raise LocalProtocolError(f"{name!r}, protocol {address.protocol!r}: {error}") from None
    except BaseException:
        wire.close()
        raise
    call_in_children(channel, DirectChannel._forked)
    return channel


def _make_protocol(
    make_protocol: Callable[[str, dict[str, Any], Side], Any], kind: str, options: dict[str, Any], side: Side
) -> Any:
    # Heartbeats are off: between two calls of the application nobody would send them, and the peer would end
    # an idle connection.
    try:
        return make_protocol(kind, {"heartbeat": 0, **options}, side)
    except msgspec.ValidationError:
        # A protocol without heartbeats has no such option.  Any other mistake is reported by this second
        # call.
        return make_protocol(kind, options, side)


def _connect(address: Address, timeout: float | None) -> socket.socket:
    if address.transport != "unix":
        return socket.create_connection((address.host or "localhost", address.port), timeout)
    connected = socket.socket(socket.AF_UNIX)
    try:
        connected.settimeout(timeout)
        connected.connect(address.place)
    except OSError:
        connected.close()
        raise
    return connected


def _accept(
    address: Address, timeout: float, on_listening: Callable[[str], object] | None
) -> tuple[socket.socket, str]:
    """Return the first peer that connects, and its name."""
    # One peer is wanted.  A second one that connects before ``close`` below is refused by it.
    bound = listen_on(address, 1)
    try:
        if on_listening is not None:
            path = address.path if address.transport in WEB_TRANSPORTS else ""
            on_listening(f"{address.protocol}+{address.transport}://{bound.address}{path}")
        # A name such as ``localhost`` may stand for several addresses, each with a socket of its own.
        poll = select.poll()
        for listening in bound.sockets:
            poll.register(listening, select.POLLIN)
        milliseconds = None if timeout == math.inf else timeout * 1000
        ready = {descriptor for descriptor, _ in poll.poll(milliseconds)}
        for listening in bound.sockets:
            if listening.fileno() in ready:
                connected, peer = listening.accept()
                return connected, peer_name(peer, connected)
        raise TimeoutError("timed out")
    finally:
        # Also when nobody has come: the file of a Unix socket that stays behind would make the next attempt
        # find the address in use.
        bound.close()
