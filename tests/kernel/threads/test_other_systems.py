"""A system without epoll, without eventfd, and with a trio that does not sleep on epoll: macOS, as far as Linux can play it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

import kernel
from kernel import EnginePlan, Envelope, RoutePlan, ThreadPlan
from kernel.contracts.message import Buffer
from kernel.testing.fixtures import KernelFactory, kernel_factory
from kernel.threads import loop
from kernel.threads.poller import SelectorPoller

__all__ = ["kernel_factory"]

TIMEOUT = 60.0


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "eventfd", raising=False)
    monkeypatch.setattr(loop, "new_poller", SelectorPoller)
    monkeypatch.setattr(loop, "trio_inside", lambda: None)


def test_questions_and_answers_over_a_connection(tmp_path: Path) -> None:
    address = f"unix://{tmp_path / 'link'}"
    answers: list[Buffer] = []

    def ask() -> None:
        with kernel.connect(address) as asking:
            answers.extend(asking.request(b"%d" % number, timeout=TIMEOUT).body for number in range(100))

    with kernel.listen(address, router="reply") as service:
        asking = threading.Thread(target=ask)
        asking.start()
        for _ in range(100):
            question = service.receive_message(timeout=TIMEOUT)
            service.reply(question, b"answer to " + question.body)
        asking.join(TIMEOUT)
    assert answers == [b"answer to %d" % number for number in range(100)]


def test_between_two_threads_through_a_broker(kernel_factory: KernelFactory) -> None:
    """The pipes are much smaller than the feed, so that both sides sleep and are woken again and again."""
    system = kernel_factory(
        ThreadPlan(name="a"),
        ThreadPlan(name="b"),
        EnginePlan(name="broker", kind="broker", thread="a"),
        EnginePlan(name="hub", kind="hub", thread="b"),
        EnginePlan(name="app", kind="native"),
        RoutePlan(source="broker", targets=("hub",), confirm=True, marks=kernel.WaterMarks(high=100)),
        RoutePlan(source="hub", targets=("app",), confirm=True, marks=kernel.WaterMarks(high=100)),
    )
    bodies = [b"%d" % number for number in range(5000)]
    got: list[Buffer] = []

    def receive() -> None:
        with system.open("app") as app:
            while len(got) < len(bodies):
                got.extend(app.receive_many(timeout=TIMEOUT))
            app.confirm()

    receiving = threading.Thread(target=receive)
    receiving.start()
    with system.open("client", "broker-client", broker="broker") as client:
        for body in bodies:
            client.publish(body, Envelope(exchange="amq.topic", key="k"))
        client.wait_confirmed(TIMEOUT)
    receiving.join(TIMEOUT)
    assert got == bodies
