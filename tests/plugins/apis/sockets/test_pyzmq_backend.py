"""Programs of pyzmq, unmodified, on this kernel: with a peer on libzmq, and for themselves."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernel.sockets import Context

pytestmark = pytest.mark.peer("pyzmq")

BACKEND = "plugins.apis.sockets.pyzmq_backend"
ROOT = Path(__file__).parents[4]
TIMEOUT = 50.0

SERVER = """
import zmq

context = zmq.Context.instance()
rep = context.socket(zmq.REP)
rep.bind("tcp://127.0.0.1:*")
pub = context.socket(zmq.XPUB)
pub.bind("tcp://127.0.0.1:*")
print(zmq.backend.Socket.__module__, rep.last_endpoint.decode(), pub.last_endpoint.decode(), flush=True)
assert pub.recv() == b"\\1weather"
for question in iter(rep.recv_multipart, [b"bye"]):
    rep.send_multipart([b"re", *question])
pub.send_multipart([b"sports", b"2:1"])
pub.send_multipart([b"weather", b"sunny"])
rep.send_json({"bye": 1})
rep.close()
pub.close()
context.term()
"""

CLIENT = """
import sys
import zmq

with zmq.Context() as context, context.socket(zmq.REQ) as req, context.socket(zmq.SUB) as sub:
    req.connect(sys.argv[1])
    sub.subscribe("weather")
    sub.connect(sys.argv[2])
    print(zmq.backend.Socket.__module__)
    req.send_string("one")
    print(req.recv_multipart())
    req.send_multipart([b"two", b"three"], copy=False)
    print([frame.bytes for frame in req.recv_multipart(copy=False)])
    req.send(b"bye")
    poller = zmq.Poller()
    poller.register(sub, zmq.POLLIN)
    assert dict(poller.poll()) == {sub: zmq.POLLIN}
    print(sub.recv_multipart())
    print(req.recv_json())
"""

ASYNC = """
import asyncio
import zmq, zmq.asyncio

async def main():
    with zmq.asyncio.Context() as context:
        router, dealer = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
        router.bind("inproc://place")
        dealer.connect("inproc://place")

        async def serve():
            for _ in range(200):
                await router.send_multipart(await router.recv_multipart())

        async def ask():
            for number in range(200):
                await dealer.send(b"%d" % number)
                assert await dealer.recv() == b"%d" % number
        await asyncio.gather(serve(), ask())
        router.close()
        dealer.close()
    print("done")

asyncio.run(main())
"""

ENDS = """
import threading
import zmq

context = zmq.Context()
pull, push = context.socket(zmq.PULL), context.socket(zmq.PUSH)
pull.bind("inproc://nobody")
push.connect("tcp://127.0.0.1:1")
push.send(b"nobody gets it")
begun = threading.Event()

def wait():
    begun.set()
    try:
        pull.recv()
    except zmq.ContextTerminated as error:
        assert error.errno == zmq.ETERM
        print("terminated")
    pull.close(0)
    push.close(0)

thread = threading.Thread(target=wait)
thread.start()
begun.wait()
context.term()
thread.join()
left = zmq.Context()
never_closed = left.socket(zmq.PUSH)
never_closed.connect("tcp://127.0.0.1:1")
never_closed.send(b"nobody gets it")
print("end")
"""

ERRORS = """
import errno
import zmq

def number(call, *arguments):
    try:
        call(*arguments)
    except zmq.ZMQError as error:
        return error.errno

with zmq.Context() as context, context.socket(zmq.REQ) as req, context.socket(zmq.PULL) as pull:
    pull.bind("tcp://127.0.0.1:*")
    place = pull.last_endpoint.decode()
    with context.socket(zmq.PUSH) as other, context.socket(zmq.ROUTER) as router:
        assert number(other.bind, place) == errno.EADDRINUSE
        assert number(other.bind, "tcp://192.0.2.1:5555") == errno.EADDRNOTAVAIL
        assert number(other.unbind, "tcp://127.0.0.1:1") == errno.ENOENT
        assert number(other.recv) == errno.ENOTSUP
        router.router_mandatory = True
        router.bind("inproc://router")
        assert number(router.send_multipart, [b"nobody", b"x"]) == errno.EHOSTUNREACH
    assert number(req.recv) == zmq.EFSM
    assert number(pull.recv, zmq.NOBLOCK) == zmq.EAGAIN
    assert number(pull.send, b"x", zmq.SNDMORE) == errno.ENOTSUP
    assert number(pull.setsockopt, zmq.SUBSCRIBE, b"") == errno.EINVAL
    assert number(pull.getsockopt, 9999) == errno.EINVAL
    assert number(context.socket, 999) == errno.EINVAL
    assert (pull.linger, pull.rcvhwm, pull.rcvtimeo) == (-1, 1000, -1)
print("done")
"""


LEFT = """
import sys
import zmq

context = zmq.Context()
push = context.socket(zmq.PUSH)
push.sndhwm = 0
push.connect(sys.argv[1])
for number in range(5000):
    push.send(b"%d" % number)
"""


FOR_EVER = """
import atexit
import sys
import zmq

def make():
    context = zmq.Context()
    push = context.socket(zmq.PUSH)
    push.linger = -1
    push.connect("tcp://127.0.0.1:1")
    push.send(b"nobody gets it")
    return context, push

way = sys.argv[1]
context, push = make()
if way == "collected":
    push.close()
    del context, push
elif way == "terminated by atexit":
    push.close()
    atexit.register(context.term)
elif way == "destroyed by atexit":
    atexit.register(context.destroy)
elif way == "left":
    push.close()
print("end")
"""

WAITS = """
import threading
import time
import warnings
import zmq
from plugins.apis.sockets.pyzmq_backend import context as ours

warnings.simplefilter("always")
ours.PATIENCE = 0.05
complained = threading.Event()
warnings.showwarning = lambda message, *more: complained.set() if "LINGER" in str(message) else None
there = zmq.Context()
pull = there.socket(zmq.PULL)
place = f"tcp://127.0.0.1:{pull.bind_to_random_port('tcp://127.0.0.1')}"
pull.unbind(place)
context = zmq.Context()
push = context.socket(zmq.PUSH)
push.linger = -1
push.connect(place)
push.send(b"a message that is not lost")
push.close()

def receive():
    assert complained.wait(30)
    pull.bind(place)
    print(pull.recv().decode())

receiver = threading.Thread(target=receive)
receiver.start()
context.term()
receiver.join()
pull.close(0)
there.term()
"""

INTERRUPTED = """
import signal
import threading
import zmq
from plugins.apis.sockets.pyzmq_backend import context as ours

ours.PATIENCE = 0.05
ours._complain = lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
context = zmq.Context()
push = context.socket(zmq.PUSH)
push.linger = -1
push.connect("tcp://127.0.0.1:1")
push.send(b"nobody gets it")
push.close()
try:
    context.term()
except KeyboardInterrupt:
    print("interrupted")
"""

LIMITS = """
import zmq

with zmq.Context() as context:
    with context.socket(zmq.PULL) as pull, context.socket(zmq.PUSH) as push:
        push.connect(f"tcp://127.0.0.1:{pull.bind_to_random_port('tcp://127.0.0.1')}")
        push.send_multipart([b"part"] * 5000)
        print(len(pull.recv_multipart()))
    with context.socket(zmq.XPUB) as pub, context.socket(zmq.SUB) as sub:
        pub.rcvhwm = sub.sndhwm = 0
        sub.connect(f"tcp://127.0.0.1:{pub.bind_to_random_port('tcp://127.0.0.1')}")
        for number in range(17_000):
            sub.subscribe(b"%d." % number)
        print(len({pub.recv() for _ in range(17_000)}))
"""

NEW_PEERS = """
import zmq

with zmq.Context() as context:
    for place in ("inproc://router", "tcp://127.0.0.1:*"):
        with context.socket(zmq.ROUTER) as router, context.socket(zmq.DEALER) as dealer:
            dealer.routing_id = b"me"
            dealer.setsockopt(zmq.PROBE_ROUTER, 1)
            router.bind(place)
            dealer.connect(router.last_endpoint)
            print(router.recv_multipart())
    with context.socket(zmq.XPUB) as pub, context.socket(zmq.SUB) as sub, context.socket(zmq.SUB) as other:
        pub.setsockopt(zmq.XPUB_WELCOME_MSG, b"welcome")
        pub.setsockopt(zmq.XPUB_VERBOSER, 1)
        pub.bind("inproc://pub")
        for each in (sub, other):
            each.subscribe("wel")
            each.connect("inproc://pub")
            print(pub.recv(), each.recv())
        for each in (sub, other):
            each.unsubscribe("wel")
            print(pub.recv())
    with context.socket(zmq.PUB) as pub, context.socket(zmq.SUB) as sub:
        pub.setsockopt(zmq.XPUB_NODROP, 1)
        pub.sndhwm = sub.rcvhwm = 10
        pub.bind("inproc://full")
        sub.subscribe("")
        sub.connect("inproc://full")
        sent = 0
        try:
            while sent < 100_000:
                pub.send(b"x", zmq.NOBLOCK)
                sent += 1
        except zmq.Again:
            print(len([sub.recv() for _ in range(sent)]) == sent, sub.poll(0))
"""

STREAM = """
import socket
import zmq

def read(stream, seconds=20):
    return stream.recv_multipart() if stream.poll(seconds * 1000) else None

def number(call, *arguments):
    try:
        call(*arguments)
    except zmq.ZMQError as error:
        return error.errno

def stream(**options):
    made = context.socket(zmq.STREAM)
    for name, value in options.items():
        made.setsockopt(getattr(zmq, name), value)
    return made

def bare(server):
    made = socket.create_connection(("127.0.0.1", int(server.last_endpoint.decode().rpartition(":")[2])))
    made.settimeout(20)
    return made

context = zmq.Context()
context.linger = 0
with stream() as server:
    server.bind("tcp://127.0.0.1:*")
    client = bare(server)
    peer, body = read(server)
    print("come", len(peer), peer[:1], body)
    client.sendall(b"hello")
    print(read(server) == [peer, b"hello"])
    server.send_multipart([peer, b"one"])
    print(client.recv(9))
    server.send(peer, zmq.SNDMORE)
    server.send(b"two", zmq.SNDMORE)
    print(client.recv(9))
    print(number(server.send_multipart, [b"nobody", b"x"]))
    server.send_multipart([peer, b""])
    print(read(server, 0.2), client.recv(9), number(server.send_multipart, [peer, b"x"]))
    with bare(server) as second:
        other, body = read(server)
        print(other != peer, body)
        second.sendall(b"bye")
        print(read(server) == [other, b"bye"])
    print(read(server) == [other, b""])
with socket.create_server(("127.0.0.1", 0)) as listener, stream() as client:
    listener.settimeout(20)
    place = "tcp://127.0.0.1:%d" % listener.getsockname()[1]
    client.connect(place)
    peer = client.routing_id
    client.send_multipart([peer, b"early"])
    for _ in range(2):
        accepted = listener.accept()[0]
        accepted.settimeout(20)
        print(read(client) == [peer, b""])
        accepted.sendall(b"x")
        print(accepted.recv(9) if _ == 0 else None, read(client) == [peer, b"x"])
        if _ == 0:
            accepted.close()
            print("gone", read(client) == [peer, b""])
    client.send_multipart([peer, b""])
    print(read(client, 0.2), accepted.recv(9), number(client.send_multipart, [peer, b"x"]))
    client.setsockopt(zmq.CONNECT_ROUTING_ID, b"mine")
    client.connect(place)
    client.send_multipart([b"mine", b"hello"])
    print(listener.accept()[0].recv(9), read(client))
with stream(STREAM_NOTIFY=0) as quiet:
    quiet.bind("tcp://127.0.0.1:*")
    with bare(quiet) as client:
        client.sendall(b"x")
        print(read(quiet)[1:])
    print(read(quiet, 0.2))
with context.socket(zmq.ROUTER) as server, context.socket(zmq.ROUTER) as client:
    server.bind("tcp://127.0.0.1:*")
    client.routing_id = b"me"
    client.router_mandatory = 1
    client.setsockopt(zmq.CONNECT_ROUTING_ID, b"server")
    client.connect(server.last_endpoint)
    client.send_multipart([b"server", b"at once"])
    print(read(server))
    server.send_multipart([b"me", b"back"])
    print(read(client))
    for name in ("STREAM_NOTIFY", "CONNECT_ROUTING_ID"):
        print(number(context.socket(zmq.DEALER).setsockopt, getattr(zmq, name), b"1" if name[0] == "C" else 1))
context.destroy(0)
"""

STEERED = """
import struct
import sys
import zmq
from zmq.devices import ThreadProxySteerable

kind = getattr(zmq, sys.argv[1])
proxy = ThreadProxySteerable(zmq.PULL, zmq.PUSH, zmq.PUSH, kind)
places = [
    f"tcp://127.0.0.1:{bind('tcp://127.0.0.1')}"
    for bind in (
        proxy.bind_in_to_random_port,
        proxy.bind_out_to_random_port,
        proxy.bind_mon_to_random_port,
        proxy.bind_ctrl_to_random_port,
    )
]
context = zmq.Context()
push, pull, seen, control = map(context.socket, (zmq.PUSH, zmq.PULL, zmq.PULL, zmq.REQ if kind == zmq.REP else kind))
for each, place in zip((push, pull, seen, control), places):
    each.linger = 0
    each.rcvtimeo = 20_000
    each.connect(place)
proxy.start()

def told():
    control.send(b"STATISTICS")
    return [struct.unpack("=Q", part)[0] for part in control.recv_multipart()]

def steer(command):
    control.send(command)
    if kind == zmq.REP:
        print(command, control.recv())

push.send_multipart([b"one", b"two"])
print(pull.recv_multipart(), seen.recv_multipart(), told())
steer(b"PAUSE")
# It is obeyed when the next command is answered.
print(told())
push.send(b"later")
print(pull.poll(100), told())
steer(b"RESUME")
print(pull.recv(), seen.recv(), told())
steer(b"TERMINATE")
proxy.join(20)
print(proxy.done)
context.destroy(0)
"""

WEB = """
import errno
import zmq

with zmq.Context() as context:
    with context.socket(zmq.REP) as rep, context.socket(zmq.REQ) as req:
        rep.bind("ws://127.0.0.1:*/questions")
        place = rep.last_endpoint.decode()
        req.connect(place)
        req.send_multipart([b"hello", b"x" * 100_000])
        rep.send_multipart([b"re", *rep.recv_multipart()])
        print(place[:15], place[-10:], [part[:5] for part in req.recv_multipart()])
        req.disconnect(place)
        rep.unbind(place)
    with context.socket(zmq.XPUB) as pub, context.socket(zmq.SUB) as sub:
        sub.subscribe("weather")
        pub.bind("ws://127.0.0.1:*")
        sub.connect(pub.last_endpoint)
        print(pub.recv())
        pub.send_multipart([b"sports", b"2:1"])
        pub.send_multipart([b"weather", b"sunny"])
        print(sub.recv_multipart(), zmq.has("ws"), zmq.has("wss"))
        for place in ("wss://127.0.0.1:*", "tls://127.0.0.1:*", "udp://127.0.0.1:*"):
            try:
                pub.bind(place)
            except zmq.ZMQError as error:
                print(errno.errorcode[error.errno])
"""

MISFITS = """
import zmq

with zmq.Context() as context:
    for receiver, sender in ((zmq.PULL, zmq.PAIR), (zmq.PULL, zmq.DEALER), (zmq.DEALER, zmq.PAIR), (zmq.PAIR, zmq.PUSH)):
        with context.socket(receiver) as taking, context.socket(sender) as giving:
            taking.bind(f"inproc://{receiver}-{sender}")
            giving.connect(f"inproc://{receiver}-{sender}")
            giving.send_multipart([b"one", b"message"])
            print(taking.recv_multipart() if taking.poll(20_000) else None)
"""

DECIDING = """
import zmq

context = zmq.Context()

def make(kind, **options):
    socket = context.socket(kind)
    socket.linger = 0
    socket.rcvtimeo = 10000
    for name, value in options.items():
        socket.setsockopt(getattr(zmq, name.upper()), value)
    return socket

def until(socket, last):
    return [*iter(socket.recv, last), last]

def refused(call):
    try:
        call()
    except zmq.ZMQError as error:
        print("refused", error.errno)

pub, one, two = make(zmq.XPUB), make(zmq.XSUB), make(zmq.XSUB)
# Without XPUB_MANUAL nobody decides.
refused(lambda: pub.setsockopt(zmq.SUBSCRIBE, b"a"))
pub.setsockopt(zmq.XPUB_MANUAL, 1)
pub.bind("tcp://127.0.0.1:*")
one.connect(pub.last_endpoint)
one.send(b"\\1a")
print(pub.recv())
pub.setsockopt(zmq.SUBSCRIBE, b"instead")
pub.setsockopt(zmq.SUBSCRIBE, b"both")
pub.setsockopt(zmq.SUBSCRIBE, b"end")
for body in (b"a", b"b", b"instead 1"):
    pub.send(body)
print(until(one, b"instead 1"))
two.connect(pub.last_endpoint)
two.send(b"\\1b")
print(pub.recv())
pub.setsockopt(zmq.SUBSCRIBE, b"both")
pub.setsockopt(zmq.SUBSCRIBE, b"end")
pub.setsockopt(zmq.UNSUBSCRIBE, b"never")
for body in (b"b", b"both 2", b"instead 3"):
    pub.send(body)
print(until(one, b"instead 3"), until(two, b"both 2"))
# Nor is a cancellation obeyed, until the program does.
one.send(b"\\0a")
print(pub.recv())
pub.setsockopt(zmq.UNSUBSCRIBE, b"both")
for body in (b"instead 4", b"end"):
    pub.send(body)
print(until(one, b"end"), until(two, b"end"))
two.close()
print(pub.recv())
pub.send(b"end")
assert one.recv() == b"end"
print("done")

pub, sub = make(zmq.PUB, invert_matching=1), make(zmq.SUB, invert_matching=1, subscribe=b"wea")
both, mark = make(zmq.SUB, invert_matching=1), make(zmq.SUB, invert_matching=1, subscribe=b"sp")
pub.bind("tcp://127.0.0.1:*")
for each in (sub, both, mark):
    each.connect(pub.last_endpoint)
got = {each: [] for each in (sub, both, mark)}
# There is no message that says that a subscription has come.
while True:
    pub.send(b"weather")
    pub.send(b"sports")
    for each in got:
        while each.poll(20):
            got[each].append(each.recv())
    if all(got.values()) and b"sports" in got[sub] and b"weather" in got[mark]:
        break
for each in got:
    while each.poll(20):
        each.recv()
pub.send(b"weather")
pub.send(b"sports")
pub.send(b"last")
print(*[until(each, b"last")[:-1] for each in got])

push = make(zmq.PUSH)
refused(lambda: push.setsockopt(zmq.XPUB_MANUAL, 1))
"""

AT_ONCE = """
import zmq

with zmq.Context() as context:
    for _ in range(50):
        with context.socket(zmq.PUB) as pub, context.socket(zmq.SUB) as sub:
            with pub.bind("inproc://place"):
                sub.connect("inproc://place")
                sub.subscribe("a")
                pub.send(b"a message that is not lost")
                sub.recv()
                sub.unsubscribe("a")
                pub.send(b"a message for nobody")
                assert not sub.poll(0)
        with context.socket(zmq.PUSH) as push, context.socket(zmq.PULL) as pull:
            with push.bind("inproc://place"):
                with pull.connect("inproc://place"):
                    push.send(b"a message that is not lost", zmq.NOBLOCK)
                    pull.recv()
                assert not push.poll(0, zmq.POLLOUT)
print("done")
"""

COLLECTED = """
import gc
import warnings
import zmq
from plugins.apis.sockets.pyzmq_backend import context as backend

warnings.simplefilter("ignore", ResourceWarning)
backend.PATIENCE = 1000.0
with zmq.Context() as context:
    push, pull = context.socket(zmq.PUSH), context.socket(zmq.PULL)
    pull.bind("inproc://place")
    push.connect("inproc://place")
    push.send(b"a message")
    with context._core._ours.kernel._dispatcher._lock:
        del push
    print(pull.recv())

cycle = [zmq.Context()]
cycle += [cycle[0].socket(zmq.PUSH), cycle]
del cycle
gc.collect()
print("end")
"""

CLOSED = """
import errno
from threading import Thread
import time
import zmq

def wait(call):
    try:
        call()
    except zmq.ZMQError as error:
        print(errno.errorcode[error.errno])

with zmq.Context() as context:
    for _ in range(10):
        for call in (lambda: pull.recv(), lambda: pull.recv_multipart(), lambda: pull.poll()):
            pull = context.socket(zmq.PULL)
            thread = Thread(target=wait, args=(call,))
            thread.start()
            end = pull._core._end
            while not end._waiter:
                time.sleep(0)
            pull.close()
            with context.socket(zmq.PAIR) as pair, context.socket(zmq.PAIR) as other:
                pair.bind("inproc://pair")
                other.connect("inproc://pair")
                other.send(b"")
                pair.recv()
            thread.join()
            assert end.closed
"""

FIRST = """
import sys
import zmq

before = set(sys.modules)
with zmq.Context() as context, context.socket(zmq.PULL) as pull:
    print(sorted(name for name in set(sys.modules) - before if name.startswith("plugins")))
print(sorted(name for name in sys.modules if name.startswith("plugins.engines.") and name.endswith(".plugin")))
"""


def program_environment(*, ours: bool) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYZMQ_BACKEND"}
    return environment | ({"PYZMQ_BACKEND": BACKEND, "PYTHONPATH": str(ROOT)} if ours else {})


def run(program: str, *arguments: str, ours: bool = True) -> list[str]:
    """Run a program to its end; return the lines that it prints."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=program_environment(ours=ours),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(params=[True, False], ids=["our client", "our server"])
def our_client(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_a_program_of_pyzmq_talks_to_libzmq(our_client: bool) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SERVER],
        env=program_environment(ours=not our_client),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            assert server.stdout is not None
            module, *places = server.stdout.readline().split()
            assert module.startswith(BACKEND) is not our_client
            module, *told = run(CLIENT, *places, ours=our_client)
            assert module.startswith(BACKEND) is our_client
            assert told == [
                "[b're', b'one']",
                "[b're', b'two', b'three']",
                "[b'weather', b'sunny']",
                "{'bye': 1}",
            ]
            assert server.wait(TIMEOUT) == 0
        finally:
            server.kill()


def test_tasks_of_asyncio_ask_and_answer() -> None:
    assert run(ASYNC) == ["done"]


def test_the_end_of_a_context_wakes_who_waits_and_no_program_hangs() -> None:
    assert run(ENDS) == ["terminated", "end"]


@pytest.mark.parametrize("way", ["collected", "terminated by atexit", "destroyed by atexit", "left"])
def test_no_program_hangs_at_its_end_for_a_message_that_may_wait_for_ever(way: str) -> None:
    assert run(FOR_EVER, way) == ["end"]


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "libzmq"])
def test_what_a_program_has_sent_arrives_although_it_closes_nothing(ours: bool) -> None:
    with Context() as context, context.socket("PULL", rcvhwm=0) as pull:
        place = pull.bind("tcp://127.0.0.1:0")
        assert run(LEFT, place, ours=ours) == []
        assert [pull.recv(timeout=TIMEOUT) for _ in range(5000)] == [b"%d" % number for number in range(5000)]


def test_a_first_socket_loads_no_plugin_and_no_program_those_that_sockets_do_not_need() -> None:
    """Programs have time limits for a first socket: PyLECO gives it half a second, also on a busy machine."""
    assert run(FIRST) == ["[]", "['plugins.engines.zmq.plugin']"]


def test_what_is_collected_as_garbage_is_closed_behind_the_program() -> None:
    """The collector runs in any thread at any time, so also in one that holds a lock, or that sockets need."""
    assert run(COLLECTED) == ["b'a message'", "end"]


def test_a_socket_that_is_closed_by_another_thread_wakes_who_waits() -> None:
    """With libzmq it is undefined what happens."""
    assert run(CLOSED) == ["ENOTSOCK"] * 30


def test_a_program_that_wants_to_wait_for_a_peer_waits_and_says_so() -> None:
    """As in libzmq, whose manual says that ``term`` waits until what was sent is with a peer."""
    assert run(WAITS) == ["a message that is not lost"]


def test_a_program_that_waits_for_a_peer_can_be_interrupted() -> None:
    assert run(INTERRUPTED) == ["interrupted"]


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "libzmq"])
def test_parts_and_subscriptions_have_no_limits_that_libzmq_does_not_have(ours: bool) -> None:
    assert run(LIMITS, ours=ours) == ["5000", "17000"]


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "libzmq"])
def test_probes_welcomes_and_subscriptions_that_are_told(ours: bool) -> None:
    assert run(NEW_PEERS, ours=ours) == [
        *["[b'me', b'']"] * 2,
        *["b'\\x01wel' b'welcome'"] * 2,
        *["b'\\x00wel'"] * 2,
        "True 0",
    ]


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "libzmq"])
def test_a_program_decides_who_gets_what(ours: bool) -> None:
    """XPUB_MANUAL and INVERT_MATCHING."""
    assert run(DECIDING, ours=ours) == [
        *("refused 22", "b'\\x01a'", "[b'instead 1']", "b'\\x01b'", "[b'both 2', b'instead 3'] [b'both 2']"),
        *("b'\\x00a'", "[b'instead 4', b'end'] [b'end']", "b'\\x00b'", "done"),
        *("[b'sports'] [b'weather', b'sports'] [b'weather']", "refused 22"),
    ]


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "libzmq"])
def test_within_a_context_connections_and_subscriptions_are_there_at_once(ours: bool) -> None:
    assert run(AT_ONCE, ours=ours) == ["done"]


def test_a_program_of_pyzmq_uses_websocket() -> None:
    """The libzmq of pyzmq's wheels was built without it; that of zeromq.js is a peer (tests/interop)."""
    assert run(WEB) == [
        "ws://127.0.0.1: /questions [b're', b'hello', b'xxxxx']",
        "b'\\x01weather'",
        "[b'weather', b'sunny'] True False",
        *["EPROTONOSUPPORT"] * 3,
    ]


@pytest.mark.parametrize("kind", ["PAIR", "REP"])
def test_a_proxy_is_steered(kind: str) -> None:
    """As in libzmq up to 4.3.4, whose manual has the numbers: messages and octets from and to each side."""
    before, after = [1, 6, 0, 0, 0, 0, 1, 6], [2, 11, 0, 0, 0, 0, 2, 11]
    told = [
        f"[b'one', b'two'] [b'one', b'two'] {before}",
        *("b'PAUSE' b''", str(before), f"0 {before}"),
        *("b'RESUME' b''", f"b'later' b'later' {after}"),
        *("b'TERMINATE' b''", "True"),
    ]
    assert run(STEERED, kind) == [line for line in told if kind == "REP" or not line.endswith(" b''")]


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "libzmq"])
def test_within_a_context_types_need_not_fit(ours: bool) -> None:
    """libzmq does not compare them there, and programs rely on it: PyLECO sends from a PAIR to a PULL."""
    assert run(MISFITS, ours=ours) == ["[b'one', b'message']"] * 4


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "libzmq"])
def test_errors_have_the_numbers_of_libzmq(ours: bool) -> None:
    assert run(ERRORS, ours=ours) == ["done"]


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "libzmq"])
def test_streams_talk_to_bare_sockets_and_routers_choose_the_names_of_peers(ours: bool) -> None:
    assert run(STREAM, ours=ours) == [
        "come 5 b'\\x00' b''",
        "True",
        "b'one'",
        "b'two'",
        str(errno.EHOSTUNREACH),
        f"None b'' {errno.EHOSTUNREACH}",
        "True b''",
        *["True"] * 3,
        "b'early' True",
        "gone True",
        "True",
        "None True",
        f"None b'' {errno.EHOSTUNREACH}",
        "b'hello' [b'mine', b'']",
        "[b'x']",
        "None",
        "[b'me', b'at once']",
        "[b'server', b'back']",
        *[str(errno.EINVAL)] * 2,
    ]
