"""What a connection that is gone leaves behind: nothing."""

from __future__ import annotations

import gc
import queue
import socket

from kernel import EnginePlan, Kernel, Plan
from kernel.contracts.engine import EngineEvent
from plugins.protocols.backend.connection import BackendConnection
from plugins.protocols.backend.frames import Control, control_frame
from plugins.protocols.backend.greeting import Greeting, encode_greeting

LONG_FRAME = b"\xff" + (100_000).to_bytes(8, "big") + b"\x00" * 50_000
"""The first half of a message: its buffer is there, and the rest never comes."""


def test_the_buffers_of_peers_that_left_in_mid_message_are_given_back() -> None:
    ended: queue.Queue[str] = queue.Queue()

    def note(event: EngineEvent) -> None:
        if event.what == "disconnected":
            ended.put(event.peer)

    options = {"mode": "listen", "address": "backend+tcp://127.0.0.1:0"}
    kernel = Kernel(Plan(engines=(EnginePlan(name="in", kind="stream", options=options),)))
    kernel.events.append(note)
    with kernel:
        kernel.wait_running()
        host, _, port = kernel.address_of("in").rpartition(":")
        for _ in range(4):
            with socket.create_connection((host, int(port)), 60) as peer:
                peer.sendall(control_frame(Control.GREETING, encode_greeting(Greeting())) + LONG_FRAME)
                assert peer.recv(65536), "the greeting"
        for _ in range(4):
            ended.get(timeout=60)
        gc.collect()
        left = [one for one in gc.get_objects() if isinstance(one, BackendConnection)]
        assert left == []
