"""Everyday life with Celery: a real worker in a process of its own, results over rpc:// and in files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.interop.brokers import Broker, KernelProcess
from tests.interop.until import TIMEOUT, until
from tests.peers import optional
from tests.ports import free_port

pytestmark = [pytest.mark.peer("celery"), pytest.mark.slow]

CELERY: Any = optional("celery")
KOMBU: Any = optional("kombu")
ROOT = Path(__file__).parents[2]


class Worker:
    """A `celery worker`."""

    def __init__(self, environment: dict[str, str], log: Path, *options: str) -> None:
        command = [sys.executable, "-m", "celery", "-A", "tests.interop.celery_tasks", "worker"]
        self._log = log
        with log.open("a") as file:
            self._process = subprocess.Popen(
                [*command, "--loglevel", "info", "--concurrency", "2", *options],
                env=environment,
                cwd=ROOT,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    def log(self) -> str:
        return self._log.read_text()

    def stop(self) -> None:
        """Ask it to stop, and see that it does."""
        self._process.terminate()
        assert self._process.wait(TIMEOUT) == 0, self.log()

    def kill(self) -> None:
        """Kill it and the processes that it has forked."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(TIMEOUT)


class Celery:
    """Workers, and an application that knows their tasks by name."""

    def __init__(
        self, broker: Broker, queue: str, folder: Path, backend: str, settings: dict[str, str]
    ) -> None:
        self._log = folder / "worker.log"
        self._workers: list[Worker] = []
        self._environment = {
            **os.environ,
            "CELERY_BROKER": broker.url,
            "CELERY_BACKEND": backend,
            "CELERY_QUEUE": queue,
            "CELERY_SETTINGS": json.dumps(settings),
            "PYTHONWARNINGS": "ignore",
        }
        self.app: Any = CELERY.Celery("caller", broker=broker.url, backend=backend, set_as_current=False)
        self.app.conf.update(task_default_queue=queue, result_chord_retry_interval=0.1, **settings)

    def start_worker(self, *options: str) -> Worker:
        worker = Worker(self._environment, self._log, "--hostname", f"w{len(self._workers)}@test", *options)
        self._workers.append(worker)
        return worker

    def sign(self, task: str, *arguments: Any) -> Any:
        """Return a task's signature."""
        return self.app.signature(f"tests.interop.celery_tasks.{task}", args=arguments)

    def call(self, task: str, *arguments: Any, **options: Any) -> Any:
        """Call a task; return its result to be."""
        return self.sign(task, *arguments).apply_async(**options)

    def close(self) -> None:
        for worker in self._workers:
            worker.kill()
        self.disconnect()

    def disconnect(self) -> None:
        """Close the application's connections; Celery itself leaves that to the end of the process."""
        if self.app.conf.result_backend == "rpc://":
            self.app.backend.result_consumer.stop()
        import_module("kombu.pools").reset()
        self.app.close()


Start = Callable[..., Celery]


@pytest.fixture
def start(broker: Broker, name: str, tmp_path: Path) -> Iterator[Start]:
    """Make an application with a backend for results."""
    made: list[Celery] = []

    def make(backend: str = "rpc://", **settings: str) -> Celery:
        made.append(Celery(broker, name, tmp_path, backend, settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_a_day_with_results_over_rpc(start: Start) -> None:
    celery = start()
    worker = celery.start_worker()
    assert celery.call("add", 1, 2).get(TIMEOUT) == 3
    calls = [celery.call("echo", {"n": n, "text": "Grüße, 世界"}) for n in range(100)]
    assert [call.get(TIMEOUT)["n"] for call in calls] == list(range(100))
    with pytest.raises(ValueError, match="as it should"):
        celery.call("fail", "as it should").get(TIMEOUT)
    assert celery.call("succeed_at", 3).get(TIMEOUT) == 3
    large = "x" * 5_000_000
    assert celery.call("echo", large).get(TIMEOUT) == large
    soon = datetime.now(UTC) + timedelta(seconds=0.5)
    assert celery.call("now", eta=soon).get(TIMEOUT) >= soon.timestamp()
    called = time.time()
    assert celery.call("now", countdown=0.5).get(TIMEOUT) >= called + 0.5
    worker.stop()


def test_groups_chains_and_chords(start: Start, tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    celery = start(f"file://{tmp_path}/results")
    worker = celery.start_worker()
    sign = celery.sign
    pairs = [sign("add", n, n) for n in range(10)]
    assert CELERY.group(pairs).apply_async().get(TIMEOUT) == [2 * n for n in range(10)]
    assert CELERY.chain(sign("add", 1, 2), sign("add", 3), sign("add", 4)).apply_async().get(TIMEOUT) == 10
    assert CELERY.chord(pairs, sign("total")).apply_async().get(TIMEOUT) == 90
    worker.stop()


def test_a_task_that_waits_for_its_time_goes_back_when_the_worker_stops(start: Start) -> None:
    celery = start()
    first = celery.start_worker()
    result = celery.call("add", 1, 2, countdown=3)
    until(lambda: f"{result.id}] received" in first.log())
    first.stop()
    celery.start_worker()
    assert result.get(TIMEOUT) == 3


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_tasks_for_later_hold_up_no_other(broker: Broker, start: Start, pool: str) -> None:
    """A worker asks for more for each task that waits for its time: its consumers have to get the new prefetch."""
    if broker.is_rabbitmq(4, 0):
        pytest.skip("kombu asks RabbitMQ 4 for no shared prefetch: tasks for later hold up the others")
    celery = start()
    celery.start_worker("--pool", pool)
    later = [celery.call("now", countdown=10 * TIMEOUT) for _ in range(30)]
    assert celery.call("add", 1, 2).get(TIMEOUT) == 3
    assert not any(result.ready() for result in later)


def test_a_worker_serves_all_its_queues(start: Start, tmp_path: Path, name: str) -> None:
    celery = start(f"file://{tmp_path}")
    notes, count = tmp_path / "notes", 100
    queues = [f"{name}-{side}" for side in ("left", "right")]
    # Not one that others declare with other arguments.
    celery.app.conf.task_queues = [KOMBU.Queue(queue, routing_key=queue) for queue in queues]
    for queue in queues:
        for _ in range(count):
            celery.call("note", str(notes), queue, queue=queue)
    celery.start_worker("--queues", ",".join(queues))
    until(lambda: notes.exists() and len(notes.read_text().splitlines()) == 2 * count)
    first = notes.read_text().splitlines()[:count]
    assert min(first.count(queue) for queue in queues) >= count // 4


def test_tasks_for_later_in_a_quorum_queue_wait_in_the_broker(start: Start) -> None:
    """A quorum queue has no shared prefetch.  Queues with a time to live, one for each bit of the delay, hold such tasks."""
    celery = start(
        task_default_queue_type="quorum", task_default_exchange_type="topic", task_default_exchange="quorum"
    )
    worker = celery.start_worker()
    until(lambda: "ready." in worker.log())
    called = time.time()
    later = celery.call("now", countdown=3)
    assert celery.call("add", 1, 2).get(TIMEOUT) == 3
    assert later.get(TIMEOUT) >= called + 3
    worker.stop()


def test_a_task_of_a_killed_worker_is_done_by_the_next(start: Start, tmp_path: Path) -> None:
    celery = start()
    notes, gate = tmp_path / "notes", tmp_path / "gate"
    first = celery.start_worker()
    result = celery.call("note_and_wait", str(notes), str(gate))
    until(lambda: notes.exists() and notes.read_text())  # it is there before what it says
    first.kill()
    gate.touch()
    celery.start_worker()
    assert result.get(TIMEOUT) == "done"
    assert notes.read_text() == "begun\n" * 2


def test_a_worker_comes_back_with_its_broker(name: str, tmp_path: Path) -> None:
    with KernelProcess(tmp_path, port=free_port()) as process:
        before = Celery(process.broker, name, tmp_path, "rpc://", {})
        worker = before.start_worker()
        assert before.call("add", 1, 2).get(TIMEOUT) == 3
        before.disconnect()
        process.kill()
        process.start()
        after = Celery(process.broker, name, tmp_path, "rpc://", {})
        assert after.call("add", 3, 4).get(TIMEOUT) == 7
        after.close()
        worker.stop()


def test_workers_are_controlled_from_afar(start: Start, tmp_path: Path) -> None:
    celery = start()
    workers = [celery.start_worker(), celery.start_worker()]
    control = celery.app.control
    until(lambda: len(control.ping(timeout=1)) == 2)
    task_id = str(uuid.uuid4())
    until(lambda: len(control.revoke(task_id, reply=True, timeout=1)) == 2)
    revoked = celery.call("add", 1, 2, task_id=task_id)
    with pytest.raises(CELERY.exceptions.TaskRevokedError):
        revoked.get(TIMEOUT)
    stuck = celery.call("note_and_wait", str(tmp_path / "notes"), str(tmp_path / "closed"))
    until((tmp_path / "notes").exists)
    until(lambda: any((control.inspect(timeout=2).active() or {}).values()))
    stuck.revoke(terminate=True, signal="SIGKILL")
    with pytest.raises(CELERY.exceptions.TaskRevokedError):
        stuck.get(TIMEOUT)
    for worker in workers:
        worker.stop()
