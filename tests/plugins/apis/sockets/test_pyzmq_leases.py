"""Programs of pyzmq that wait with a Poller or in asyncio, on this kernel: lone messages need no poll thread."""

from __future__ import annotations

import pytest

from tests.plugins.apis.sockets.test_leases import LENT
from tests.plugins.apis.sockets.test_pyzmq_backend import run
from tests.systems import lends

pytestmark = [pytest.mark.peer("pyzmq"), lends]

FAR = """
import sys
import threading
import zmq

MINE, ITS = sys.argv[1:]
LARGE = bytes(range(256)) * 1000

class Far:
    "Sends each message back, in a thread."

    def __init__(self, place):
        self.context = zmq.Context()
        self.socket = self.context.socket(getattr(zmq, ITS))
        self.socket.bind(place)
        self.place = self.socket.last_endpoint.decode()
        self.thread = threading.Thread(target=self.answer, daemon=True)
        self.thread.start()

    def answer(self):
        while (message := self.socket.recv_multipart()) != [b"stop"]:
            self.socket.send_multipart(message)
        self.socket.close()
        self.context.term()

def lease_of(socket):
    "Return the lease that is used, if there is one, and have the next one asked for soon."
    end = socket._core._end
    end._borrower.after = 8
    return end.leased if end.leased is not None and end.leased.active else None
"""

POLLER = (
    FAR
    + """
far = Far("tcp://127.0.0.1:*")
context = zmq.Context()
socket = context.socket(getattr(zmq, MINE))
socket.connect(far.place)
poller = zmq.Poller()
poller.register(socket, zmq.POLLIN)

def receive():
    assert poller.poll(20_000) == [(socket, zmq.POLLIN)]
    return socket.recv_multipart()

def ask(*parts):
    socket.send_multipart(parts)
    assert receive() == [*parts]

def lend():
    for number in range(40_000):
        ask(b"%d" % number)
        if (lease := lease_of(socket)):
            return lease
    raise AssertionError("no lease")

# On a busy machine a look may end it in between.
lease = lend()
received = lease.received
while lease.received < received + 10:
    if not lease.active:
        lease = lend()
        received = lease.received
    ask(b"lone")
lend()
ask(b"two", b"parts")
lend()
ask(LARGE)
lend()
socket.send(b"seen often")
for _ in range(5):
    assert poller.poll(20_000) == [(socket, zmq.POLLIN)]
assert socket.recv() == b"seen often"
lend()
assert socket.get(zmq.EVENTS) == zmq.POLLOUT
socket.send(b"blocking")
assert socket.recv() == b"blocking"
if MINE == "REQ":
    lend()
    for wrong in (lambda: socket.recv(zmq.NOBLOCK), socket.recv):
        try:
            wrong()
        except zmq.ZMQError as error:
            assert error.errno == zmq.EFSM
        else:
            raise AssertionError("received before it asked")
    lend()
    socket.send(b"open")
    assert not socket.get(zmq.EVENTS) & zmq.POLLOUT
    assert receive() == [b"open"]
else:
    for milliseconds in (0, 1, 700):
        lend()
        assert poller.poll(milliseconds) == []
    lend()
    try:
        socket.recv(zmq.NOBLOCK)
    except zmq.Again:
        ask(b"on")
    lend()
    socket.send(b"first")
    socket.send(b"second")
    socket.send_multipart([b"third", b"message"])
    assert [receive() for _ in range(3)] == [[b"first"], [b"second"], [b"third", b"message"]]
    lease = lend()
    socket.send(b"stop")
    far.thread.join()
    while lease.active:
        assert poller.poll(100) == []
    far = Far(far.place)
    lend()
socket.send(b"stop")
far.thread.join()
socket.close()
context.term()
print("done")
"""
)

ASYNC = (
    FAR
    + """
import asyncio
import zmq.asyncio

async def main():
    far = Far("tcp://127.0.0.1:*")
    context = zmq.asyncio.Context()
    socket = context.socket(getattr(zmq, MINE))
    socket.connect(far.place)

    async def receive():
        return await asyncio.wait_for(socket.recv_multipart(), 20)

    async def ask(*parts):
        await socket.send_multipart(parts)
        assert await receive() == [*parts]

    async def lend():
        for number in range(40_000):
            await ask(b"%d" % number)
            if (lease := lease_of(socket._shadow_sock)):
                return lease
        raise AssertionError("no lease")

    async def nothing_comes(seconds):
        try:
            await asyncio.wait_for(socket.recv(), seconds)
        except asyncio.TimeoutError:
            return
        raise AssertionError("something came")

    lease = await lend()
    received = lease.received
    while lease.received < received + 10:
        if not lease.active:
            lease = await lend()
            received = lease.received
        await ask(b"lone")
    await lend()
    await ask(b"two", b"parts")
    await lend()
    await ask(LARGE)
    await lend()
    await socket.send(b"polled")
    assert await socket.poll(20_000) == zmq.POLLIN
    assert await socket.recv() == b"polled"
    await lend()
    assert socket.get(zmq.EVENTS) == zmq.POLLOUT
    if MINE != "REQ":
        for seconds in (0, 0.001, 0.7):
            await lend()
            await nothing_comes(seconds)
        await lend()
        waiting = [socket.recv(), socket.recv()]
        await socket.send(b"first")
        await socket.send(b"second")
        assert [await each for each in waiting] == [b"first", b"second"]
        lease = await lend()
        await socket.send(b"stop")
        far.thread.join()
        while lease.active:
            await nothing_comes(0.1)
        far = Far(far.place)
        await lend()
    await socket.send(b"stop")
    far.thread.join()
    socket.close()
    context.term()

asyncio.run(main())
print("done")
"""
)


@pytest.mark.parametrize("kinds", LENT, ids="-".join)
@pytest.mark.parametrize("program", [POLLER, ASYNC], ids=["Poller", "asyncio"])
def test_a_program_that_waits_for_each_message(program: str, kinds: tuple[str, str]) -> None:
    assert run(program, *kinds) == ["done"]
