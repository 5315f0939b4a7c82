"""Logins of programs of pyzmq on this kernel, with a handler of pyzmq, and libzmq on the other side."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.plugins.apis.sockets.test_pyzmq_backend import TIMEOUT, program_environment, run

pytestmark = pytest.mark.peer("pyzmq")

SERVER = """
import sys
import zmq
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils.monitor import recv_monitor_message

class Provider:
    def callback(self, domain, key):
        return domain == "lab" and key == sys.argv[1].encode()

def told(monitor):
    message = recv_monitor_message(monitor)
    return message["event"].name, int(message["value"])

context = zmq.Context()
door = ThreadAuthenticator(context)
door.start()
door.configure_plain(domain="*", passwords={"anna": "secret"})
door.configure_curve_callback(domain="lab", credentials_provider=Provider())
plain, curve, null = (context.socket(zmq.PULL) for _ in range(3))
plain.plain_server = True
public, curve.curve_secretkey = zmq.curve_keypair()
curve.curve_server = True
curve.zap_domain = null.zap_domain = b"lab"
for pull in (plain, curve, null):
    pull.bind("tcp://127.0.0.1:*")
    pull.rcvtimeo = 15_000
monitor = curve.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
print(zmq.backend.Socket.__module__, public.decode(), *(s.last_endpoint.decode() for s in (plain, curve, null)), flush=True)
print(told(monitor))
for pull in (plain, curve, null):
    head, body = pull.recv_multipart(copy=False)
    facts = [frame[name] for frame in (head, body) for name in ("User-Id", "Socket-Type", "Peer-Address")]
    print(head.bytes, body.bytes, facts)
    try:
        body["Nothing"]
    except (zmq.ZMQError, KeyError):
        print("nothing")
curve.disable_monitor()
monitor.close()
for pull in (plain, curve, null):
    pull.close()
door.stop()
context.term()
"""

CLIENT = """
import sys
import zmq
from zmq.utils.monitor import recv_monitor_message

public, secret, server, plain, curve, null = sys.argv[1:]
with zmq.Context() as context:
    with context.socket(zmq.PUSH) as stranger:
        stranger.curve_publickey, stranger.curve_secretkey = zmq.curve_keypair()
        stranger.curve_serverkey = server.encode()
        stranger.reconnect_ivl = -1
        monitor = stranger.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
        stranger.connect(curve)
        message = recv_monitor_message(monitor)
        print(zmq.backend.Socket.__module__)
        print(message["event"].name, int(message["value"]))
        stranger.disable_monitor()
        monitor.close()
    with context.socket(zmq.PUSH) as push:
        push.plain_username, push.plain_password = b"anna", b"secret"
        push.connect(plain)
        push.send_multipart([b"plain", b"1"])
    with context.socket(zmq.PUSH) as push:
        push.curve_publickey, push.curve_secretkey = public.encode(), secret.encode()
        push.curve_serverkey = server.encode()
        push.connect(curve)
        push.send_multipart([b"curve", b"2"])
    with context.socket(zmq.PUSH) as push:
        push.connect(null)
        push.send_multipart([b"null", b"3"])
"""


@pytest.mark.parametrize("server, client", [(True, False), (False, True), (True, True)])
def test_programs_log_in(server: bool, client: bool) -> None:
    """``server``, ``client``: whether it is on this kernel."""
    pytest.importorskip("nacl")
    import zmq

    public, secret = (key.decode() for key in zmq.curve_keypair())
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, public],
        env=program_environment(ours=server),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            module, *places = process.stdout.readline().split()
            assert module.startswith("plugins.") is server
            module, *told = run(CLIENT, public, secret, *places, ours=client)
            assert module.startswith("plugins.") is client
            assert told == ["HANDSHAKE_FAILED_AUTH 400"]
            got, _ = process.communicate(timeout=TIMEOUT)
        finally:
            process.kill()
    who = {"plain": "anna", "curve": public, "null": "anonymous"}
    facts = {name: [user, "PUSH", "127.0.0.1"] * 2 for name, user in who.items()}
    assert got.splitlines() == [
        "('HANDSHAKE_FAILED_AUTH', 400)",
        *(
            line
            for number, name in enumerate(facts, 1)
            for line in (f"b'{name}' b'{number}' {facts[name]}", "nothing")
        ),
    ]
