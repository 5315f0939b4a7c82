"""A dialler whose peer greets and hangs up at once tries again after ever longer waits."""

from __future__ import annotations

import queue
import socket
import threading

import pytest

from kernel import EnginePlan, Kernel, Plan
from kernel.contracts.engine import EngineEvent
from kernel.hosting.backoff import Backoff
from plugins.engines.stream import dialler
from plugins.protocols.backend.frames import Control, control_frame
from plugins.protocols.backend.greeting import Greeting, encode_greeting


class Slow(Backoff):
    """On a machine that may need a thousand times as long as another to hang up."""

    def lasted(self, seconds: float) -> None:
        super().lasted(seconds / 1000)


def test_a_peer_that_hangs_up_after_the_handshake_is_not_redialled_at_the_shortest_wait_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dialler, "Backoff", Slow)
    waits: queue.Queue[float] = queue.Queue()

    def note(event: EngineEvent) -> None:
        if event.what == "retrying" and event.next_try is not None:
            waits.put(event.next_try)

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet_and_hang_up() -> None:
            try:
                while True:
                    peer, _ = listener.accept()
                    with peer:
                        peer.sendall(control_frame(Control.GREETING, encode_greeting(Greeting())))
                        peer.recv(65536)
            except OSError:  # the listener is closed: the test is over
                pass

        thread = threading.Thread(target=greet_and_hang_up)
        thread.start()
        address = f"backend+tcp://127.0.0.1:{listener.getsockname()[1]}"
        options = {"address": address, "reconnect": {"first": 0.02, "jitter": 0.0}}
        kernel = Kernel(Plan(engines=(EnginePlan(name="out", kind="stream", options=options),)))
        kernel.events.append(note)
        with kernel:
            seen = [waits.get(timeout=60) for _ in range(4)]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(60)
    assert seen == [0.02, 0.04, 0.08, 0.16]
