"""usrsctp on a UDP socket (RFC 6951): its functions are called through ctypes, in a loop with ``select``."""

from __future__ import annotations

import ctypes
import select
import socket
import time
from multiprocessing.connection import Connection

from benchmarks.processes import WARM, time_calls
from benchmarks.scenario import Unavailable
from tests.plugins.protocols.sctp import usrsctp_peer

PORT, OWN_PORT = 5000, 5001
BATCH = 64
READS_A_TURN = 64
TICK = 0.01
BUFFER = 1 << 22


class Hosted:
    """A peer of usrsctp, a socket and the clock."""

    def __init__(self, port: int, to: int | None = None) -> None:
        if not usrsctp_peer.is_there():
            raise Unavailable("libusrsctp is not installed (make peers)")
        self.peer = usrsctp_peer.Peer(port)
        self.buffer = ctypes.create_string_buffer(BUFFER)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            self._socket.setsockopt(socket.SOL_SOCKET, option, BUFFER)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.setblocking(False)
        self._to = ("127.0.0.1", to or 0)
        self._time = time.monotonic()
        if to is None:
            self.peer.listen()
        else:
            self.peer.connect(PORT)
        self.udp_port: int = self._socket.getsockname()[1]

    def turn(self, wait: float) -> None:
        """Send what there is, wait for packets, and take them in."""
        self._flush()
        if wait:
            select.select([self._socket], [], [], wait)
        for _ in range(READS_A_TURN):
            try:
                packet, self._to = self._socket.recvfrom(65536)
            except BlockingIOError:
                break
            self.peer.packet_in(packet)
        passed = int((time.monotonic() - self._time) * 1000)
        if passed >= 10:
            self._time += passed / 1000
            self.peer.pass_time(passed)
        self._flush()

    def _flush(self) -> None:
        packets, self.peer.sent[:] = list(self.peer.sent), []
        for packet in packets:
            self._socket.sendto(packet, self._to)

    def receive(self, size: int) -> int:
        """Wait until so many bytes have come; return how many there are."""
        received = self.peer.receive_into(self.buffer)
        while received < size:
            self.turn(TICK)
            received += self.peer.receive_into(self.buffer)
        return received

    def send(self, data: bytes) -> None:
        """Queue a message; wait while there is no room."""
        while not self.peer.send(0, data):
            self.turn(TICK)


def receive(link: Connection, count: int, size: int) -> None:
    """Receive all; say how many messages a second."""
    hosted = Hosted(PORT)
    link.send(hosted.udp_port)
    first = hosted.receive(1)
    start = time.perf_counter()
    hosted.receive(count * size - first)
    link.send((count - first / size) / (time.perf_counter() - start))
    _serve(hosted, link)


def send(link: Connection, place: int, count: int, size: int) -> None:
    """Send as fast as it goes."""
    hosted = Hosted(OWN_PORT, place)
    while not hosted.peer.send(0, b"x" * size):
        hosted.turn(TICK)
    data = b"x" * size
    for sent in range(count - 1):
        hosted.send(data)
        if sent % BATCH == 0:
            hosted.turn(0)
    _serve(hosted, link)


def echo(link: Connection, count: int, size: int) -> None:
    """Send back what comes."""
    hosted = Hosted(PORT)
    link.send(hosted.udp_port)
    data = b"x" * size
    for _ in range(WARM + count):
        hosted.receive(size)
        hosted.send(data)
        hosted.turn(0)
    _serve(hosted, link)


def ask(link: Connection, place: int, count: int, size: int) -> None:
    """Send and wait for the answer."""
    hosted = Hosted(OWN_PORT, place)
    data = b"x" * size

    def there_and_back() -> None:
        hosted.send(data)
        hosted.turn(0)
        hosted.receive(size)

    link.send(time_calls(there_and_back, count))
    _serve(hosted, link)


def _serve(hosted: Hosted, link: Connection) -> None:
    """Go on answering until the parent says that it is over."""
    while not link.poll():
        hosted.turn(TICK)
        hosted.peer.receive_into(hosted.buffer)
