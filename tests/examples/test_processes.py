"""The examples with engines in processes of their own: real clients, and a process that is killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from base64 import b64encode
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import trustme

from kernel import EnginePlan, Kernel, RoutePlan
from kernel.testing.fixtures import plan_of
from tests.examples.test_brokers_together import _get
from tests.examples.test_examples import _kernel_run, spawned
from tests.interop.until import until
from tests.ports import free_port

__all__ = ["spawned"]

pytestmark = [pytest.mark.peer("pika"), pytest.mark.slow]


def _connect(port: int, vhost: str = "/") -> Any:
    import pika

    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, vhost))


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 60).close()
    except ConnectionError:
        return False
    return True


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


def test_one_broker_serves_both_its_virtual_hosts_at_one_port(
    spawned: list[subprocess.Popen[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    monkeypatch.setenv("AMQP_PORT", str(port))
    monkeypatch.setenv("BROKER_DIR", str(tmp_path / "store"))
    program = _kernel_run(spawned, "broker_on_two_cores.toml")
    with _connect(port) as first, _connect(port, "prices") as second:
        for connection, body in ((first, b"here"), (second, b"there")):
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("q", durable=True)
            channel.basic_publish("", "q", body)
            assert channel.basic_get("q", auto_ack=True)[2] == body
    program.terminate()
    program.communicate(timeout=60)
    assert {path.name for path in tmp_path.iterdir()} == {"store", "store-second"}


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


def test_orders_over_tls_are_confirmed_although_the_process_with_the_listener_is_killed(
    spawned: list[subprocess.Popen[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    certificate, trusted = tmp_path / "server.pem", tmp_path / "authority.pem"
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(certificate)
    authority.cert_pem.write_to_path(trusted)
    port, orders = free_port(), free_port()
    for name, value in (("AMQP_CERTIFICATE", certificate), ("AMQP_PORT", port), ("ORDERS_PORT", orders)):
        monkeypatch.setenv(name, str(value))
    program = _kernel_run(spawned, "tls_in_a_process.toml")
    options = {"address": f"backend+tls://localhost:{orders}", "tls": {"authorities": str(trusted)}}
    plan = plan_of(
        EnginePlan(name="app", kind="native"),
        EnginePlan(name="net", kind="stream", options=options),
        RoutePlan(source="app", targets=("net",), confirm=True),
    )
    bodies = [b"%d" % number for number in range(3)]
    with Kernel(plan) as sender, sender.open("app") as app:
        for body in bodies:
            app.send(body, key="k")
            app.wait_confirmed(timeout=60)
            if body == b"1":
                os.kill(_children(program)[0], signal.SIGKILL)
    got = []
    with _connect(port) as connection:
        channel = connection.channel()
        while (taken := channel.basic_get("orders", auto_ack=True)[2]) is not None:
            got.append(taken)
    assert list(dict.fromkeys(got)) == bodies


def test_pages_are_served_while_the_process_of_the_broker_is_killed_and_started_again(
    spawned: list[subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    port, web = free_port(), free_port()
    monkeypatch.setenv("AMQP_PORT", str(port))
    monkeypatch.setenv("WEB_PORT", str(web))
    program = _kernel_run(spawned, "watched_broker_in_a_process.toml")

    def queues() -> list[str] | None:
        """Return their names; None while nobody is there who could say."""
        login = {"Authorization": f"Basic {b64encode(b'guest:guest').decode()}"}
        try:
            with urlopen(Request(f"http://127.0.0.1:{web}/api/queues", headers=login), timeout=60) as page:
                return [row["name"] for row in json.load(page)]
        except HTTPError as error:
            error.close()
            return None

    with _connect(port) as connection:
        connection.channel().queue_declare("q")
        assert queues() == ["q"]
    os.kill(_children(program)[0], signal.SIGKILL)
    # It keeps nothing on a disk, so the new process has no queue.
    until(lambda: queues() == [] and _listens(port))
    with urlopen(f"http://127.0.0.1:{web}/health/live", timeout=60) as page:
        assert page.status == 200
    with _connect(port) as connection:
        connection.channel().queue_declare("again")
        assert queues() == ["again"]


def test_rows_of_spark_come_once_although_the_process_that_takes_them_is_killed(
    spawned: list[subprocess.Popen[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pa = pytest.importorskip("pyarrow")
    pytest.importorskip("pyspark")
    from plugins.apis.spark.bus_writer import send_epoch
    from plugins.apis.spark.options import WriteOptions
    from plugins.apis.spark.staging import stage

    port, listening = free_port(), free_port()
    for name, value in (("AMQP_PORT", port), ("ROWS_PORT", listening), ("DATA_DIR", tmp_path / "broker")):
        monkeypatch.setenv(name, str(value))
    program = _kernel_run(spawned, "spark_rows_in_a_process.toml")
    options = WriteOptions(address=f"backend+tcp://127.0.0.1:{listening}", timeout=60, deduplicate=True)
    bodies = [b"%d" % number for number in range(8000)]
    for epoch in range(4):
        part = bodies[epoch * 2000 : (epoch + 1) * 2000]
        rows = pa.RecordBatch.from_pydict({"body": part, "key": ["rows"] * len(part)})
        staged = stage(tmp_path, "query", epoch, 0, [rows])
        assert staged is not None
        if epoch % 2:
            # Before, or in the middle of it.
            os.kill(_children(program)[0], signal.SIGKILL)
        assert send_epoch(options, tmp_path, "query", epoch, [staged])
    with _connect(port) as connection:
        channel = connection.channel()
        count = channel.queue_declare("rows", passive=True).method.message_count
        got = [body for _, _, body in islice(channel.consume("rows", auto_ack=True), count)]
        assert got == bodies
