"""``docs/follow_one_message.md`` tells what happens: a live message passes the hops of the list, in their order."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from kernel.topology.plan import EnginePlan, Plan, RoutePlan
from kernel.topology.system import Kernel

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "follow_one_message.md"
HOPS = re.findall(r"^\d+\. `([\w/]+\.py:[\w.]+)` — \S", PAGE.read_text(), re.MULTILINE)


class _Trail:
    """The hops of the list as they are entered, from the moment that ``begun`` is set."""

    def __init__(self) -> None:
        self.begun = False
        self.hops: list[str] = []

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        if self.begun and event == "call":
            code = frame.f_code
            if code.co_filename.startswith(str(ROOT)):
                name = code.co_qualname.replace("<locals>.", "")
                hop = f"{Path(code.co_filename).relative_to(ROOT)}:{name}"
                if hop in HOPS and hop not in self.hops:
                    self.hops.append(hop)


def _plan(app: str, source: str, target: str, **options: Any) -> Plan:
    return Plan(
        engines=(
            EnginePlan(name=app, kind="native"),
            EnginePlan(name="link", kind="stream", options=options),
        ),
        routes=(RoutePlan(source=source, targets=(target,)),),
    )


def _send_one(trail: _Trail) -> bytes:
    listening = _plan("in", "link", "in", mode="listen", address="backend+tcp://127.0.0.1:0")
    with Kernel(listening) as there, there.open("in") as incoming:
        there.wait_running()
        dialling = _plan("out", "out", "link", address=f"backend+tcp://{there.address_of('link')}")
        with Kernel(dialling) as here, here.open("out") as out:
            here.wait_running()
            out.send(b"not followed: it waits for the connection")
            incoming.receive(timeout=5)
            trail.begun = True
            out.send(b"hello")
            return bytes(incoming.receive(timeout=5))


def test_a_live_message_passes_the_hops_in_order() -> None:
    assert 8 <= len(HOPS) <= 10
    trail = _Trail()
    threading.setprofile(trail.profile)  # for the threads that the kernels start
    sys.setprofile(trail.profile)
    try:
        body = _send_one(trail)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert body == b"hello"
    # The application that receives is in its call before the message is there, so that its hop is entered at any time.
    assert HOPS[-1] in trail.hops
    assert [hop for hop in trail.hops if hop != HOPS[-1]] == HOPS[:-1]


def test_the_page_counts_right() -> None:
    words = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    files = {hop.partition(":")[0] for hop in HOPS}
    assert f"{words[len(HOPS)].capitalize()} functions in {words[len(files)]} files" in PAGE.read_text()
