"""nats-py, the client of the NATS project, against a kernel."""

from __future__ import annotations

import asyncio
import gc
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernel import EnginePlan, Kernel, PluginRegistry, RoutePlan
from kernel.contracts.engine import Host
from kernel.contracts.errors import KernelError
from kernel.contracts.kinds import EngineSetup
from kernel.testing.fixtures import KernelFactory

nats = pytest.importorskip("nats")
trustme = pytest.importorskip("trustme")

TIMEOUT = 60
ITSELF = RoutePlan(source="nats", targets=("nats",), router="by-key", echo=True)

Serve = Callable[..., Kernel]
Use = Callable[..., Awaitable[Any]]


@pytest.fixture
def serve(kernel_factory: KernelFactory, registry: PluginRegistry) -> Iterator[Serve]:
    """Start a kernel that is a NATS server."""

    def serve(*more: EnginePlan | RoutePlan, engine: dict[str, Any] | None = None, **protocol: Any) -> Kernel:
        options = {
            "mode": "listen",
            "address": "nats+tcp://127.0.0.1:0",
            "protocol": protocol,
            **(engine or {}),
        }
        return kernel_factory(
            EnginePlan(name="nats", kind="stream", options=options), ITSELF, *more, registry=registry
        )

    yield serve
    gc.collect()  # a client that could not connect does not close its socket


def run(kernel: Kernel, use: Use, clients: int = 1, **options: Any) -> Any:
    """Connect clients, call ``use`` with them, and close them."""

    async def main() -> Any:
        options.setdefault("allow_reconnect", False)
        options.setdefault("error_cb", _keep_nothing)
        connected = [
            await nats.connect(f"nats://{kernel.address_of('nats')}", **options) for _ in range(clients)
        ]
        try:
            return await use(*connected)
        finally:
            for client in connected:
                await client.close()

    return asyncio.run(main())


async def _keep_nothing(_: Exception) -> None:
    """Replace the client's own callback, whose log record would keep the client."""


async def _flush(client: Any) -> None:
    """Wait until what the client has said so far is in effect.

    nats-py writes the PING of ``flush`` at once, and in the next turn of its loop the subscriptions and
    messages that were before it.  So the first PONG says nothing about these, and the second does.
    """
    await client.flush()
    await client.flush()


async def _next(subscription: Any) -> Any:
    return await subscription.next_msg(timeout=TIMEOUT)


def test_publish_and_subscribe(serve: Serve) -> None:
    async def use(one: Any, other: Any) -> None:
        subscription = await one.subscribe("greet.joe")
        await _flush(one)
        await other.publish("greet.sue", b"not for us")
        await other.publish("greet.joe", b"hello", headers={"Lang": "en"})
        message = await _next(subscription)
        assert (message.subject, message.data, message.headers) == ("greet.joe", b"hello", {"Lang": "en"})

    run(serve(), use, clients=2)


def test_wildcards(serve: Serve) -> None:
    async def use(one: Any, other: Any) -> None:
        star = await one.subscribe("a.*")
        rest = await one.subscribe("a.>")
        every = await one.subscribe(">")
        await _flush(one)
        for subject in ("a", "a.b", "a.b.c", "b.b"):
            await other.publish(subject, subject.encode())
        await other.publish("a.end")
        got = {}
        for name, subscription in (("*", star), ("a.>", rest), (">", every)):
            got[name] = []
            while (subject := (await _next(subscription)).subject) != "a.end":
                got[name].append(subject)
        assert got == {"*": ["a.b"], "a.>": ["a.b", "a.b.c"], ">": ["a", "a.b", "a.b.c", "b.b"]}

    run(serve(), use, clients=2)


def test_a_client_hears_itself_unless_it_says_otherwise(serve: Serve) -> None:
    async def hear(client: Any) -> bytes:
        subscription = await client.subscribe("a")
        other = await nats.connect(client.connected_url.geturl())
        await _flush(client)
        await client.publish("a", b"mine")
        await _flush(client)
        await other.publish("a", b"others'")
        data: bytes = (await _next(subscription)).data
        await other.close()
        return data

    kernel = serve()
    assert run(kernel, hear) == b"mine"
    assert run(kernel, hear, no_echo=True) == b"others'"


def test_a_queue_group_gets_each_message_once(serve: Serve) -> None:
    """Even if one of its clients has several members, another group, and a subscription without a group."""
    messages = 60

    async def use(*clients: Any) -> None:
        got: dict[str, list[bytes]] = {}

        def take(name: str) -> Any:
            async def callback(message: Any) -> None:
                got.setdefault(name, []).append(message.data)
                if sum(map(len, got.values())) == 3 * messages:
                    done.set()

            return callback

        done = asyncio.Event()
        publisher, *workers = clients
        for number, worker in enumerate(workers):
            await worker.subscribe("jobs.*", queue="workers", cb=take(f"worker {number}"))
        await workers[0].subscribe("jobs.*", queue="workers", cb=take("worker 0 again"))
        await workers[0].subscribe("jobs.*", queue="auditors", cb=take("auditor"))
        await workers[0].subscribe("jobs.>", cb=take("monitor"))
        for worker in workers:
            await _flush(worker)
        bodies = [b"%d" % number for number in range(messages)]
        for body in bodies:
            await publisher.publish("jobs.new", body)
        await _flush(publisher)
        await asyncio.wait_for(done.wait(), TIMEOUT)
        assert got.pop("auditor") == bodies
        assert got.pop("monitor") == bodies
        shared = Counter(body for part in got.values() for body in part)
        assert shared == Counter(bodies)
        assert len(got) == 4, "each member had some"

    run(serve(), use, clients=4)


def test_unsubscribing(serve: Serve) -> None:
    async def use(client: Any) -> None:
        three = await client.subscribe("a")
        none = await client.subscribe("a")
        rest = await client.subscribe("a")
        await three.unsubscribe(limit=3)
        await none.unsubscribe()
        await _flush(client)
        for number in range(5):
            await client.publish("a", b"%d" % number)
        assert [(await _next(rest)).data for _ in range(5)] == [b"0", b"1", b"2", b"3", b"4"]
        assert three.delivered == 3

    run(serve(), use)


def test_request_and_reply(serve: Serve) -> None:
    async def use(asking: Any, answering: Any) -> None:
        async def answer(message: Any) -> None:
            await message.respond(b"re: " + message.data)

        await answering.subscribe("help", queue="helpers", cb=answer)
        await _flush(answering)
        answers = await asyncio.gather(
            *[asking.request("help", b"%d" % number, timeout=TIMEOUT) for number in range(10)]
        )
        assert [message.data for message in answers] == [b"re: %d" % number for number in range(10)]
        old = await asking.request("help", b"old", timeout=TIMEOUT, old_style=True)
        assert old.data == b"re: old"

    run(serve(), use, clients=2)


@pytest.mark.parametrize("old_style", [False, True])
def test_a_request_that_nobody_answers_fails_at_once(serve: Serve, old_style: bool) -> None:
    async def use(client: Any) -> None:
        with pytest.raises(nats.errors.NoRespondersError):
            await client.request("nobody", b"?", timeout=TIMEOUT, old_style=old_style)

    run(serve(), use)


def test_many_messages_and_large_ones_arrive_in_order(serve: Serve) -> None:
    bodies = [b"%d" % number for number in range(5000)] + [b"x" * 900_000, b"", b"y" * 500_000]

    async def use(one: Any, other: Any) -> None:
        subscription = await one.subscribe("a")
        await _flush(one)
        for body in bodies:
            await other.publish("a", body)
        await _flush(other)
        assert [(await _next(subscription)).data for _ in bodies] == bodies

    run(serve(), use, clients=2)


def test_other_engines_publish_and_subscribe_too(serve: Serve) -> None:
    kernel = serve(
        EnginePlan(name="app", kind="native"),
        RoutePlan(source="app", targets=("nats",), router="by-key"),
        RoutePlan(source="nats", targets=("app",)),
    )

    async def use(client: Any) -> None:
        subscription = await client.subscribe("to.*")
        await _flush(client)
        with kernel.open("app") as app:
            app.send(b"from the application", key="to.nats")
            assert (await _next(subscription)).data == b"from the application"
            await client.publish("from.nats", b"from NATS", reply="inbox", headers={"A": "1"})
            await _flush(client)
            message = app.receive_message(timeout=TIMEOUT)
        assert (message.key, bytes(message), message.envelope.reply_to) == (
            "from.nats",
            b"from NATS",
            "inbox",
        )
        assert message.envelope.properties["headers"] == {"A": "1"}

    run(kernel, use)


def test_tls_begins_behind_info(serve: Serve, tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    (tmp_path / "key.pem").write_bytes(certificate.private_key_pem.bytes())
    (tmp_path / "cert.pem").write_bytes(b"".join(each.bytes() for each in certificate.cert_chain_pems))
    files = {"certificate": str(tmp_path / "cert.pem"), "key": str(tmp_path / "key.pem")}
    context = ssl.create_default_context()
    authority.configure_trust(context)

    async def use(client: Any) -> None:
        subscription = await client.subscribe("a")
        await _flush(client)
        await client.publish("a", b"secret")
        assert (await _next(subscription)).data == b"secret"

    kernel = serve(engine={"tls": files}, tls=True)
    run(kernel, use, tls=context, tls_hostname="localhost")
    with pytest.raises((ssl.SSLError, nats.errors.Error, OSError)):
        run(kernel, use, tls=ssl.create_default_context(), tls_hostname="localhost")


CREDENTIALS = pytest.mark.parametrize(
    "credentials, let_in",
    [
        ({"user": "anna", "password": "secret"}, True),
        ({"token": "t0ken"}, True),
        ({"user": "anna", "password": "wrong"}, False),
        ({"token": "wrong"}, False),
        ({}, False),
    ],
)


@CREDENTIALS
def test_only_who_has_the_credentials_is_let_in(
    serve: Serve, credentials: dict[str, str], let_in: bool
) -> None:
    _log_in(serve(users={"anna": "secret"}, token="t0ken"), credentials, let_in)


class Door:
    """An engine that decides on logins."""

    def __init__(self, setup: EngineSetup) -> None:
        """Nothing can be set."""

    async def run(self, host: Host, *, task_status: Any) -> None:
        import trio

        task_status.started("")
        await trio.sleep_forever()

    def statistics(self) -> dict[str, Any]:
        return {}

    def operate(self, what: str, argument: Any) -> None:
        known = {("PLAIN", "anna", b"secret"), ("TOKEN", "", b"t0ken")}
        if (argument["mechanism"], argument["user"], argument["secret"]) not in known:
            raise KernelError("wrong password")


@CREDENTIALS
def test_another_engine_may_decide_who_is_let_in(
    serve: Serve, credentials: dict[str, str], let_in: bool
) -> None:
    kernel = serve(engine={"authenticator": "door"}, authenticate=True)
    kernel.host("door", Door)
    kernel.wait_running()
    _log_in(kernel, credentials, let_in)


def _log_in(kernel: Kernel, credentials: dict[str, str], let_in: bool) -> None:
    async def use(client: Any) -> None:
        await client.flush()

    if let_in:
        run(kernel, use, **credentials)
    else:
        with pytest.raises(nats.errors.Error, match="Authorization Violation"):
            run(kernel, use, **credentials)
