"""greenstalk, a client of beanstalkd, on the broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from kernel import EnginePlan, Kernel, PluginRegistry
from kernel.testing.fixtures import KernelFactory

greenstalk = pytest.importorskip("greenstalk")

LISTENER = {"protocol": "beanstalk", "address": "tcp://127.0.0.1:0"}


@pytest.fixture
def kernel(kernel_factory: KernelFactory, registry: PluginRegistry) -> Kernel:
    options = {"listeners": [LISTENER]}
    return kernel_factory(EnginePlan(name="broker", kind="broker", options=options), registry=registry)


@pytest.fixture
def connect(kernel: Kernel) -> Iterator[Callable[[], greenstalk.Client]]:
    port = int(kernel.address_of("broker").rpartition(":")[2])
    clients: list[greenstalk.Client] = []

    def connect() -> greenstalk.Client:
        clients.append(greenstalk.Client(("127.0.0.1", port)))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


def test_put_reserve_and_delete(connect: Callable[[], greenstalk.Client]) -> None:
    client = connect()
    client.put("first")
    client.put("second")
    job = client.reserve()
    assert job.body == "first"
    client.delete(job)
    assert client.reserve().body == "second"
    with pytest.raises(greenstalk.TimedOutError):
        client.reserve(timeout=0)
    with pytest.raises(greenstalk.NotFoundError):
        client.delete(job)


def test_a_job_that_is_released_is_reserved_again(connect: Callable[[], greenstalk.Client]) -> None:
    client = connect()
    client.put("job")
    job = client.reserve()
    client.touch(job)
    client.release(job)
    assert client.reserve(timeout=0).body == "job"


def test_a_worker_that_waits_is_given_what_another_puts(connect: Callable[[], greenstalk.Client]) -> None:
    worker, producer = connect(), connect()
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(worker.reserve, timeout=60)
        producer.put("job")
        assert waiting.result(60).body == "job"


def test_a_job_that_takes_too_long_is_for_another(connect: Callable[[], greenstalk.Client]) -> None:
    slow, other = connect(), connect()
    slow.put("job", ttr=1)
    slow.reserve()
    assert other.reserve(timeout=60).body == "job"


def test_buried_jobs_are_kicked(connect: Callable[[], greenstalk.Client]) -> None:
    client = connect()
    client.put("job")
    client.bury(client.reserve())
    with pytest.raises(greenstalk.TimedOutError):
        client.reserve(timeout=0)
    assert client.kick(10) == 1
    assert client.reserve(timeout=60).body == "job"


def test_tubes(connect: Callable[[], greenstalk.Client]) -> None:
    client = connect()
    client.use("mail")
    client.put("letter")
    with pytest.raises(greenstalk.TimedOutError):
        client.reserve(timeout=0)
    client.watch("mail")
    assert set(client.watching()) == {"default", "mail"}
    assert client.reserve(timeout=60).body == "letter"
    client.ignore("default")
    assert client.watching() == ["mail"]
    with pytest.raises(greenstalk.NotIgnoredError):
        client.ignore("mail")


def test_a_delayed_job_comes_later(connect: Callable[[], greenstalk.Client]) -> None:
    client = connect()
    client.put("later", delay=1)
    with pytest.raises(greenstalk.TimedOutError):
        client.reserve(timeout=0)
    assert client.reserve(timeout=60).body == "later"


def test_a_tube_is_a_queue_of_the_broker(kernel: Kernel, connect: Callable[[], greenstalk.Client]) -> None:
    connect().put("job")
    with kernel.open("app", "broker-client", broker="broker") as application:
        delivery = application.get("default")
        assert delivery is not None
        assert bytes(delivery.body) == b"job"


def test_a_job_that_is_too_large_is_refused_and_skipped(connect: Callable[[], greenstalk.Client]) -> None:
    client = connect()
    with pytest.raises(greenstalk.JobTooBigError):
        client.put("x" * 70_000)
    client.put("small")
    assert client.reserve().body == "small"
