"""usrsctp over UDP (RFC 6951) in a process of its own: returns each message on its stream.

    python -m tests.plugins.engines.sctp.usrsctp_program listen
    python -m tests.plugins.engines.sctp.usrsctp_program connect PORT UDP-PORT

Prints its ports, of SCTP and of UDP, and ends with its input.
"""

from __future__ import annotations

import select
import socket
import sys
from collections import deque
from time import monotonic

from tests.plugins.protocols.sctp.usrsctp_peer import Peer, Received

OWN_PORT = 5001
TICK = 0.01


class Program:
    """A peer of usrsctp, a socket and a clock."""

    def __init__(self, role: str, port: int = 0, udp_port: int = 0) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.setblocking(False)
        self._to = ("127.0.0.1", udp_port)
        self._peer = Peer(OWN_PORT)
        self._waiting: deque[Received] = deque()
        self._time = monotonic()
        if role == "listen":
            self._peer.listen()
        else:
            self._peer.connect(port)
        print(OWN_PORT, self._socket.getsockname()[1], flush=True)

    def run(self) -> None:
        """Go on until the input ends."""
        while not self._step():
            pass
        self._peer.close()

    def _step(self) -> bool:
        while self._peer.sent:
            self._socket.sendto(self._peer.sent.pop(0), self._to)
        ready, _, _ = select.select([self._socket, sys.stdin], [], [], TICK)
        while True:
            try:
                packet, self._to = self._socket.recvfrom(65536)
            except BlockingIOError:
                break
            self._peer.packet_in(packet)
        self._waiting += self._peer.receive()
        while self._waiting and self._send(self._waiting[0]):
            self._waiting.popleft()
        passed = int((monotonic() - self._time) * 1000)
        if passed:
            self._time += passed / 1000
            self._peer.pass_time(passed)
        return sys.stdin in ready

    def _send(self, message: Received) -> bool:
        return self._peer.send(message.stream, message.data, message.protocol, unordered=message.unordered)


if __name__ == "__main__":
    Program(sys.argv[1], *map(int, sys.argv[2:])).run()
