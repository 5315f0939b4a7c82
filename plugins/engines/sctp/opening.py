"""Opening and closing the sockets of an endpoint."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence
from typing import Any

import msgspec
import trio

from kernel.contracts.engine import EngineEvent, Host
from plugins.engines.sctp.conversation_host import ConversationHost, Converse
from plugins.engines.sctp.endpoint_host import EndpointHost
from plugins.engines.sctp.location import UDP_PORT
from plugins.engines.sctp.options import SctpEngineOptions
from plugins.engines.sctp.system.host import SystemHost
from plugins.engines.sctp.transport import Transport
from plugins.protocols.sctp.endpoint import Endpoint

CLOSE_TIMEOUT = 0.5
"""Seconds that graceful shutdowns may take when the engine stops and was given no time to linger."""

_FIRST_PORT, _PORTS = 49152, 16384
"""The dynamic ports (RFC 6335, 6): the first, and how many."""


async def resolved(hosts: Sequence[str], *, here: bool = False) -> tuple[str, ...]:
    """Return the IP addresses of hosts, IPv4 first.

    An empty host (all interfaces) stays empty. Raises ``OSError``.
    ``here``: the hosts are this system. Of several addresses of a name, those that it does not have are left
    out: ``localhost`` mostly has an IPv6 address in containers that have no IPv6.
    """
    found: dict[str, None] = {}
    for host in hosts:
        if not host:
            return ("",)
        rows = await trio.socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)
        # A dictionary keeps the order, and each address once.
        addresses = dict.fromkeys(
            str(address[0])
            for family, _, _, _, address in sorted(rows, key=lambda row: row[0])
            if family in (socket.AF_INET, socket.AF_INET6)
        )
        if here:
            # If it has none of them, the error of the first says so when its socket is opened.
            addresses = dict.fromkeys(filter(_is_here, addresses)) or addresses
        found |= addresses
    return tuple(found)


def _is_here(address: str) -> bool:
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError as error:
        return error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
    return True


def open_endpoint(
    host: Host,
    engine: str,
    options: SctpEngineOptions,
    hosts: Sequence[str],
    port: int | None,
    udp_port: int | None,
    converse: Converse,
) -> ConversationHost[Any]:
    """Open the sockets of an endpoint.

    ``port`` is the SCTP port of a listener (0: any), or None for a dialler, whose UDP port is any. Raises
    ``OSError``.
    """
    if options.transport == "system":
        system = SystemHost(host, engine, options, converse, hosts=hosts, port=port, udp_port=udp_port)
        _report_warnings(host, engine, system.warnings)
        return system
    udp_port = UDP_PORT if udp_port is None else udp_port
    transport = Transport(
        hosts,
        # A dialler's packets may come from any UDP port: the peer answers to the one that it sees (RFC 6951,
        # 5.4).
        0 if port is None else udp_port,
        raw=options.transport == "raw",
        send_buffer=options.send_buffer,
        receive_buffer=options.receive_buffer,
    )
    # A dialler's port is random. With the port of an earlier run, the peer could take its INIT for a restart
    # (RFC 9260, 5.2.2).
    number = port or _FIRST_PORT + int.from_bytes(os.urandom(2), "big") % _PORTS
    _report_warnings(host, engine, transport.warnings)
    endpoint = Endpoint(
        msgspec.structs.replace(options.sctp, streams_out=options.streams),
        number,
        os.urandom(32),
        addresses=transport.addresses,
        listens=port is not None,
    )
    return EndpointHost(host, engine, transport, endpoint, options, converse, ports=(number, udp_port))


def _report_warnings(host: Host, engine: str, warnings: Sequence[str]) -> None:
    for warning in warnings:
        host.report(EngineEvent(engine=engine, what="warning", detail=warning))


async def shut_down(host: Host, endpoint: ConversationHost[Any]) -> None:
    """Shut all associations down, and close the sockets.

    It takes as long as the measured round trips need, but no longer than the engine may linger. Associations
    that take longer are aborted.
    """
    lingers = host.linger_left()
    needed = max((each.association.shutdown_time() for each in endpoint.conversations.values()), default=0.0)
    limit = max(min(needed, lingers), CLOSE_TIMEOUT)
    try:
        # Shielded: this runs while the engine is being cancelled.
        with trio.CancelScope(shield=True, deadline=trio.current_time() + limit):
            endpoint.close_all()
            await endpoint.empty.wait()
        # The sockets stay open for a moment, to repeat a SHUTDOWN COMPLETE that was lost.
        repeats = min(endpoint.repeats_until() - host.now(), host.linger_left())
        if repeats > 0:
            with trio.CancelScope(shield=True):
                await trio.sleep(repeats)
    finally:
        for conversation in list(endpoint.conversations.values()):
            conversation.fail("shut down")
        endpoint.close()
