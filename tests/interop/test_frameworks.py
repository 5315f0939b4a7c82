"""Everyday life with frameworks on top of other clients: dramatiq on pika, nameko on kombu, FastStream on aio-pika."""

from __future__ import annotations

import asyncio
import subprocess
from typing import Any

import pytest

from tests.interop.brokers import Broker
from tests.peers import PROGRAMS_PYTHON, optional

FASTSTREAM: Any = optional("faststream.rabbit")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(250)]

DRAMATIQ = """
import sys
import threading
import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq.results import Results

url, queue = sys.argv[1:]
broker = RabbitmqBroker(url=url)
dramatiq.set_broker(broker)
done, tries, lock = [], {}, threading.Lock()

def note(number):
    with lock:
        tries[number] = tries.get(number, 0) + 1
        if number % 10 == 0 and tries[number] < 3:
            raise ValueError("try again")
        done.append(number)

@dramatiq.actor(queue_name=queue, max_retries=5, min_backoff=10, max_backoff=20)
def work(number):
    note(number)

@dramatiq.actor(queue_name=queue, max_retries=0)
def fail():
    raise ValueError("as it should")

for number in range(200):
    work.send(number)
for number in range(200, 220):
    work.send_with_options(args=(number,), delay=50)
fail.send()
worker = dramatiq.Worker(broker, worker_timeout=100, worker_threads=4)
worker.start()
broker.join(queue, timeout=60000)
worker.join()
worker.stop()
print(sorted(done) == list(range(220)), tries[10], tries[11])
print(broker.get_queue_message_counts(queue))
broker.close()
"""

NAMEKO = """
import sys
import eventlet
eventlet.monkey_patch()
import nameko
from nameko.containers import ServiceContainer
from nameko.events import BROADCAST, EventDispatcher, event_handler
from nameko.rpc import ServiceRpc, rpc
from nameko.standalone.events import event_dispatcher
from nameko.standalone.rpc import ServiceRpcClient

url, prefix = sys.argv[1:]
heard = eventlet.Queue()

class Adder:
    name = prefix + "-adder"
    dispatch = EventDispatcher()

    @rpc
    def add(self, left, right):
        self.dispatch("added", left + right)
        return left + right

    @rpc
    def fail(self):
        raise ValueError("as it should")

class Doubler:
    name = prefix + "-doubler"
    adder = ServiceRpc(prefix + "-adder")

    @rpc
    def double(self, number):
        return self.adder.add(number, number)

    @event_handler(prefix + "-adder", "added")
    def note(self, total):
        heard.put(total)

nameko.config.update(AMQP_URI=url)
containers = [ServiceContainer(service) for service in (Adder, Doubler)]
for container in containers:
    container.start()
with ServiceRpcClient(prefix + "-doubler") as doubler, ServiceRpcClient(prefix + "-adder") as adder:
    print([doubler.double(number) for number in range(10)])
    calls = [adder.add.call_async(number, 1) for number in range(10)]
    print([call.result() for call in calls])
    try:
        adder.fail()
    except Exception as error:
        print(type(error).__name__, error)
print(sorted(heard.get(timeout=30) for _ in range(20)))
for container in containers:
    container.stop()
"""


def _run(program: str, broker: Broker, name: str) -> list[str]:
    done = subprocess.run(
        [str(PROGRAMS_PYTHON), "-W", "ignore", "-c", program, broker.url, name],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.peer("programs")
def test_dramatiq_retries_delays_and_dead_letters(broker: Broker, name: str) -> None:
    # The third count is that of dead letters.
    assert _run(DRAMATIQ, broker, name) == ["True 3 1", "(0, 0, 1)"]


@pytest.mark.peer("programs")
def test_nameko_calls_and_events(broker: Broker, name: str) -> None:
    assert _run(NAMEKO, broker, name) == [
        "[0, 2, 4, 6, 8, 10, 12, 14, 16, 18]",
        "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]",
        "RemoteError ValueError as it should",
        str(sorted([*range(0, 20, 2), *range(1, 11)])),
    ]


@pytest.mark.peer("faststream")
def test_faststream_answers_requests(broker: Broker, name: str) -> None:
    async def ask() -> list[Any]:
        shop = FASTSTREAM.RabbitBroker(broker.url)

        async def answer(order: str) -> str:
            return order.upper()

        shop.subscriber(FASTSTREAM.RabbitQueue(name, auto_delete=True))(answer)
        async with asyncio.timeout(120), shop:
            await shop.start()
            answers = await asyncio.gather(*(shop.request(f"tea {n}", name, timeout=60) for n in range(10)))
            return [await message.decode() for message in answers]

    assert asyncio.run(ask()) == [f"TEA {n}" for n in range(10)]
