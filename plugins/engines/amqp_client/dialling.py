"""Dialling: from an address to a connected wire."""

from __future__ import annotations

import socket
import ssl

import trio

from kernel.contracts.errors import ConnectionLost
from kernel.hosting.address import Address, parse_address
from kernel.hosting.tls import client_context, handshake
from kernel.hosting.wire import PlainWire, TlsWire, Wire
from plugins.engines.amqp_client.connect_options import ConnectOptions


class Dialling:
    """The addresses of one link, in turn."""

    def __init__(self, options: ConnectOptions) -> None:
        self.addresses = [_address(text) for text in options.addresses]
        self._timeout = options.connect_timeout
        self._server_name = options.tls.server_name
        self._tls: ssl.SSLContext | None = None
        if any(address.transport == "tls" for address in self.addresses):
            self._tls = client_context(options.tls)

    async def connect(self, address: Address) -> Wire:
        """Return a wire; ``ConnectionLost`` says why there is none."""
        try:
            with trio.fail_after(self._timeout):
                connected = await _connect(address)
        except trio.TooSlowError:
            raise ConnectionLost(f"no connection to {address} within {self._timeout} s") from None
        except OSError as error:
            causes = error.__cause__.exceptions if isinstance(error.__cause__, ExceptionGroup) else ()
            cause = causes[0] if causes else error
            text = getattr(cause, "strerror", None) or cause
            raise ConnectionLost(f"cannot connect to {address}: {text}") from None
        if address.transport != "tls":
            return PlainWire(connected)
        assert self._tls is not None
        name = self._server_name or address.host
        wrapped = await handshake(
            connected, self._tls, server_side=False, server_name=name, seconds=self._timeout
        )
        return TlsWire(wrapped)


async def _connect(address: Address) -> socket.socket:
    if address.transport == "unix":
        stream = await trio.open_unix_socket(address.place)
    else:
        stream = await trio.open_tcp_stream(address.host or "localhost", address.port)
    theirs = stream.socket
    connected = socket.socket(theirs.family, theirs.type, theirs.proto, fileno=theirs.detach())
    connected.setblocking(False)
    if address.transport != "unix":
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return connected


def _address(text: str) -> Address:
    address = parse_address(text if "://" in text else f"amqp+tcp://{text}", ("tcp", "tls", "unix"))
    if address.protocol != "amqp":
        raise ValueError(f"{text!r}: an AMQP client takes amqp+tcp, amqp+tls or amqp+unix")
    return address
