"""The tasks of the Celery tests; imported by the workers and by the tests."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import celery

app = celery.Celery("tests.interop.celery_tasks", set_as_current=False)
app.conf.update(
    broker_url=os.environ.get("CELERY_BROKER", "amqp://"),
    result_backend=os.environ.get("CELERY_BACKEND", "rpc://"),
    task_default_queue=os.environ.get("CELERY_QUEUE", "celery"),
    task_track_started=True,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    result_chord_retry_interval=0.1,
    worker_hijack_root_logger=False,
    **json.loads(os.environ.get("CELERY_SETTINGS", "{}")),
)


@app.task
def add(left: int, right: int) -> int:
    return left + right


@app.task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task
def fail(text: str) -> None:
    raise ValueError(text)


@app.task(bind=True, max_retries=5)
def succeed_at(self: Any, attempt: int) -> int:
    """Fail until it has been tried so many times."""
    tries: int = self.request.retries
    if tries < attempt:
        raise self.retry(countdown=0.05)
    return tries


@app.task
def note(notes: str, text: str) -> None:
    """Write a line."""
    with Path(notes).open("a") as file:
        file.write(f"{text}\n")


@app.task
def now() -> float:
    return time.time()


@app.task(acks_late=True, reject_on_worker_lost=True)
def note_and_wait(notes: str, gate: str) -> str:
    """Write down that it was begun; end when the gate is open."""
    with Path(notes).open("a") as file:
        file.write("begun\n")
    while not Path(gate).exists():
        time.sleep(0.02)
    return "done"


@app.task
def echo(value: Any) -> Any:
    return value
