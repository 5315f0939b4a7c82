"""aiortc's SCTP, that of WebRTC's data channels, in Python: on a UDP socket of asyncio, without DTLS and ICE.

The data channel is reliable, ordered and negotiated beforehand; it is filled as in aiortc's example that
sends a file.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from functools import partial
from multiprocessing.connection import Connection
from socket import SO_RCVBUF, SO_SNDBUF, SOL_SOCKET
from typing import Any

from aiortc.rtcdatachannel import RTCDataChannel, RTCDataChannelParameters
from aiortc.rtcsctptransport import RTCSctpTransport

from benchmarks.processes import WARM

PORT = 5000
QUEUED = 1 << 18
"""Bytes that wait in the channel at the most."""
BUFFER = 1 << 22


class Wire(asyncio.DatagramProtocol):
    """Takes the place of DTLS for an ``RTCSctpTransport``: sends and receives datagrams.

    The peer is given, or it is the sender of the first datagram.
    """

    state = "connected"

    def __init__(self, to: int | None) -> None:
        self._role = "server" if to is None else "client"
        self._peer = None if to is None else ("127.0.0.1", to)
        self._came: asyncio.Queue[bytes] = asyncio.Queue()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = transport

    def datagram_received(self, data: bytes, address: Any) -> None:
        self._peer = address
        self._came.put_nowait(data)

    def _register_data_receiver(self, receiver: RTCSctpTransport) -> None:
        self._reading = asyncio.ensure_future(self._read(receiver))

    async def _read(self, receiver: RTCSctpTransport) -> None:
        while True:
            await receiver._handle_data(await self._came.get())

    async def _send_data(self, data: bytes) -> None:
        if self._peer is not None:
            self._socket.sendto(data, self._peer)


class Hosted:
    """An association with a data channel on it."""

    def __init__(self, wire: Wire, udp_port: int) -> None:
        self.udp_port = udp_port
        self.transport = RTCSctpTransport(wire, PORT)
        parameters = RTCDataChannelParameters(id=0, negotiated=True, ordered=True)
        self.channel = RTCDataChannel(self.transport, parameters)
        self.channel.bufferedAmountLowThreshold = QUEUED // 2

    async def open(self) -> None:
        """Wait until the channel is open."""
        is_open = asyncio.Event()
        self.channel.once("open", is_open.set)
        if self.channel.readyState != "open":
            await is_open.wait()

    async def send(self, data: bytes) -> None:
        """Queue a message; wait while there is no room."""
        if self.channel.bufferedAmount >= QUEUED:
            room = asyncio.Event()
            self.channel.once("bufferedamountlow", room.set)
            await room.wait()
        self.channel.send(data)


async def _hosted(to: int | None = None) -> Hosted:
    """Begin on a socket of its own, and connect to the UDP port ``to`` if there is one."""
    loop = asyncio.get_running_loop()
    socket, wire = await loop.create_datagram_endpoint(partial(Wire, to), ("127.0.0.1", 0))
    for option in (SO_RCVBUF, SO_SNDBUF):
        socket.get_extra_info("socket").setsockopt(SOL_SOCKET, option, BUFFER)
    hosted = Hosted(wire, socket.get_extra_info("sockname")[1])
    await hosted.transport.start(None, PORT)
    return hosted


async def _until_over(link: Connection) -> None:
    """Go on answering until the parent says that it is over."""
    await asyncio.to_thread(link.recv)


def receive(link: Connection, count: int, size: int) -> None:
    """Receive all; say how many messages a second."""
    asyncio.run(_receive(link, count))


async def _receive(link: Connection, count: int) -> None:
    hosted = await _hosted()
    times: list[float] = []
    received = itertools.count(1)

    def on_message(message: bytes) -> None:
        if next(received) in (1, count):
            times.append(time.perf_counter())
            if len(times) == 2:
                link.send((count - 1) / (times[1] - times[0]))

    hosted.channel.on("message", on_message)
    link.send(hosted.udp_port)
    await _until_over(link)


def send(link: Connection, place: int, count: int, size: int) -> None:
    """Send as fast as it goes."""
    asyncio.run(_send(link, place, count, size))


async def _send(link: Connection, place: int, count: int, size: int) -> None:
    hosted = await _hosted(place)
    await hosted.open()
    data = b"x" * size
    for _ in range(count):
        await hosted.send(data)
    await _until_over(link)


def echo(link: Connection, count: int, size: int) -> None:
    """Send back what comes."""
    asyncio.run(_echo(link))


async def _echo(link: Connection) -> None:
    hosted = await _hosted()
    hosted.channel.on("message", hosted.channel.send)
    link.send(hosted.udp_port)
    await _until_over(link)


def ask(link: Connection, place: int, count: int, size: int) -> None:
    """Send and wait for the answer."""
    asyncio.run(_ask(link, place, count, size))


async def _ask(link: Connection, place: int, count: int, size: int) -> None:
    hosted = await _hosted(place)
    await hosted.open()
    answers: asyncio.Queue[bytes] = asyncio.Queue()
    hosted.channel.on("message", answers.put_nowait)
    data, taken = b"x" * size, []
    for _ in range(WARM + count):
        start = time.perf_counter_ns()
        hosted.channel.send(data)
        await answers.get()
        taken.append(time.perf_counter_ns() - start)
    link.send(taken[WARM:])
    await _until_over(link)
