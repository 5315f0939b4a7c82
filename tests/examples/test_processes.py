"""The examples with engines in processes of their own: real clients, and a process that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.examples.test_brokers_together import _get
from tests.examples.test_examples import _kernel_run, spawned
from tests.ports import free_port

__all__ = ["spawned"]

pytestmark = [pytest.mark.peer("pika"), pytest.mark.slow]


def _connect(port: int, vhost: str = "/") -> Any:
    import pika

    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, vhost))


def _children(program: subprocess.Popen[str]) -> list[int]:
    tasks = Path(f"/proc/{program.pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def test_publishers_of_a_killed_journal_are_confirmed_and_all_of_it_is_there(
    spawned: list[subprocess.Popen[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow")
    from plugins.protocols.journal_format.reader import JournalReader

    port, journal = free_port(), tmp_path / "journal"
    monkeypatch.setenv("AMQP_PORT", str(port))
    monkeypatch.setenv("JOURNAL_DIR", str(journal))
    program = _kernel_run(spawned, "journal_in_a_process.toml")
    bodies = [b"%d" % number for number in range(60)]
    with _connect(port) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number, body in enumerate(bodies):
            channel.basic_publish("feed", "k", body)  # returns when it is confirmed
            if number % 20 == 10:
                os.kill(_children(program)[0], signal.SIGKILL)
    program.terminate()
    program.communicate(timeout=60)
    rows: list[bytes] = []
    for batch in JournalReader(journal).record_batches(columns=["body"]):
        rows += batch.column(0).to_pylist()
    assert list(dict.fromkeys(rows)) == bodies


def test_two_brokers_share_alerts(
    spawned: list[subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, sensors = free_port(), free_port()
    monkeypatch.setenv("SHOP_PORT", str(shop))
    monkeypatch.setenv("SENSORS_PORT", str(sensors))
    program = _kernel_run(spawned, "two_brokers.toml")
    assert len(_children(program)) == 2
    with _connect(shop, "shop") as here, _connect(sensors, "sensors") as there:
        queue = here.channel()
        queue.queue_declare("q")
        queue.queue_bind("q", "alerts", "fire.#")
        publisher = there.channel()
        publisher.confirm_delivery()
        publisher.basic_publish("alerts", "fire.hall", b"hot")
        assert _get(queue, "q") == b"hot"
