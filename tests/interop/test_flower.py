"""Celery Flower's page of the broker, and Celery's `inspect`: what Flower asks the API for, and shows."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.managed_brokers import Managed
from tests.interop.until import TIMEOUT, until
from tests.peers import optional
from tests.ports import free_port

pytestmark = [
    pytest.mark.peer("celery"),
    pytest.mark.peer("flower"),
    pytest.mark.peer("prometheus-client"),
    pytest.mark.slow,
]

CELERY: Any = optional("celery")
ROOT = Path(__file__).parents[2]


class Processes:
    """A worker of Celery, and Flower, of one broker."""

    def __init__(self, managed: Managed, queue: str, log: Path) -> None:
        self.flower_port = free_port()
        self._log = log
        broker = f"amqp://guest:guest@127.0.0.1:{managed.amqp}//"
        self.app = CELERY.Celery("caller", broker=broker, set_as_current=False)
        environment = os.environ | {
            "CELERY_BROKER": broker,
            "CELERY_QUEUE": queue,
            "PYTHONWARNINGS": "ignore",
        }
        api = f"http://guest:guest@127.0.0.1:{managed.web}/api/"
        flower = [f"--port={self.flower_port}", "--address=127.0.0.1", f"--broker-api={api}"]
        self._processes = [
            self._start(environment, "worker", "--pool", "solo", "--hostname", "w@test"),
            self._start(environment, "flower", *flower),
        ]

    def _start(self, environment: dict[str, str], *command: str) -> subprocess.Popen[bytes]:
        with self._log.open("a") as file:
            return subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", "tests.interop.celery_tasks", *command],
                env=environment,
                cwd=ROOT,
                stdout=file,
                stderr=file,
            )

    def page(self, path: str) -> str:
        """Return a page of Flower; empty as long as it does not answer."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.flower_port}{path}", timeout=TIMEOUT
            ) as page:
                text: str = page.read().decode()
        except OSError:
            assert all(process.poll() is None for process in self._processes), self._log.read_text()
            return ""
        return text

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait(TIMEOUT)


@pytest.fixture
def processes(managed: Managed, name: str, tmp_path: Path) -> Iterator[Processes]:
    found = Processes(managed, name, tmp_path / "log")
    yield found
    found.stop()


def test_flower_shows_the_queue_and_celery_sees_its_worker(processes: Processes, name: str) -> None:
    inspect = processes.app.control.inspect(timeout=1.0)
    assert until(inspect.ping) == {"w@test": {"ok": "pong"}}
    assert [queue["name"] for queue in inspect.active_queues()["w@test"]] == [name]
    assert "tests.interop.celery_tasks.add" in inspect.registered()["w@test"]
    assert inspect.stats()["w@test"]["broker"]["transport"] == "amqp"
    # Flower learns of the worker's queues by such a request, and asks the API for these.
    page = until(lambda: text if name in (text := processes.page("/broker")) else "")
    assert "Messages" in page
