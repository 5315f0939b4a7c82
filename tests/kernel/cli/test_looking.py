"""``kernel status``, ``queues`` and their sisters, against a running system; and ``kernel run --control``."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel.cli.looking import add_rates, print_table
from kernel.topology.control import ControlServer
from kernel.topology.plan import EnginePlan, Plan
from kernel.topology.system import Kernel
from plugins.protocols.amqp091.methods import basic, queue
from tests.kernel.cli.test_commands import Command, kernel
from tests.kernel.cli.test_run import LISTENER, running
from tests.plugins.engines.amqp.raw_client import RawClient

__all__ = ["kernel"]

OPTIONS = {
    "address": "127.0.0.1:0",
    "queues": [{"name": "[bold]", "arguments": {"x-max-length": 9}}],
    "bindings": [{"exchange": "amq.topic", "queue": "[bold]", "key": "a.#"}],
}


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A system with a client that consumes, one message unacknowledged and one ready."""
    plan = Plan(engines=(EnginePlan(name="broker", kind="amqp", options=OPTIONS),))
    with Kernel(plan) as system, ControlServer(system, tmp_path / "c.sock"):
        system.wait_running()
        with RawClient(int(system.address_of("broker").rpartition(":")[2])) as client:
            client.send(basic.Qos(prefetch_count=1))
            client.ask(basic.Consume(queue="[bold]", consumer_tag="me"), basic.ConsumeOk)
            client.publish(b"1", "a.b", "amq.topic")
            client.publish(b"2", "a.b", "amq.topic")
            client.ask(queue.Declare(queue="[bold]", passive=True), queue.DeclareOk)
            yield tmp_path / "c.sock"


def test_queues(kernel: Command, path: Path) -> None:
    status, shown, errors = kernel("queues", "--control", path, "--json")
    [row] = json.loads(shown)
    names = ("engine", "vhost", "name", "messages", "messages_ready", "messages_unacknowledged", "consumers")
    assert [row[name] for name in names] == ["broker", "/", "[bold]", 2, 1, 1, 1]
    assert (status, errors) == (0, "")


def test_a_table_shows_names_as_they_are(kernel: Command, path: Path) -> None:
    _, shown, _ = kernel("queues", "--control", path)
    assert shown.split()[:3] == ["engine", "vhost", "name"]
    assert "[bold]" in shown
    assert "x-max-length=9" in shown


def test_a_table_has_nothing_in_it_that_a_terminal_would_obey(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Clients choose the names of queues."""
    print_table("", ("name", "arguments"), [{"name": "a\x1b[31mb\nc", "arguments": {"x\x1b]0;": "y\x9b"}}])
    shown = capsys.readouterr().out
    assert "a\\x1b[31mb c" in shown
    assert "x\\x1b]0;=y\\x9b" in shown
    assert "\x1b" not in shown


def test_what_is_not_for_a_terminal_is_not_folded(capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"column_{number}" for number in range(60)]
    print_table("", names, [{name: f"{name}={'x' * 30}" for name in names}])
    heading, row = filter(str.strip, capsys.readouterr().out.splitlines())
    assert heading.split() == names
    assert row.split() == [f"{name}={'x' * 30}" for name in names]


def test_bindings_and_exchanges(kernel: Command, path: Path) -> None:
    bindings = json.loads(kernel("bindings", "--control", path, "--json")[1])
    assert [(b["source_name"], b["routing_key"], b["destination_name"]) for b in bindings] == [
        ("", "[bold]", "[bold]"),
        ("amq.topic", "a.#", "[bold]"),
    ]
    exchanges = json.loads(kernel("exchanges", "--control", path, "--json")[1])
    assert {e["name"]: e["bindings"] for e in exchanges}["amq.topic"] == 1


def test_connections_and_consumers(kernel: Command, path: Path) -> None:
    [connection] = json.loads(kernel("connections", "--control", path, "--json")[1])
    assert (connection["user"], connection["state"], connection["messages_in"]) == ("guest", "running", 2)
    assert connection["ssl"] is False
    [consumer] = json.loads(kernel("consumers", "--control", path, "--json")[1])
    assert (consumer["consumer_tag"], consumer["queue_name"], consumer["prefetch_count"]) == (
        "me",
        "[bold]",
        1,
    )
    assert consumer["connection"] == connection["name"]


@pytest.mark.parametrize("what", ["status", "queues", "exchanges", "bindings", "connections", "consumers"])
def test_every_one_watches_and_has_a_table(kernel: Command, path: Path, what: str) -> None:
    status, shown, errors = kernel(what, "--control", path, "--watch", "0.01", "--looks", "2")
    assert (status, errors) == (0, "")
    assert "broker" in shown
    assert ("messages_in/s" in shown) == (what in ("status", "queues", "connections"))


def test_a_rate_is_what_came_in_between() -> None:
    before = [{"name": "a", "messages_in": 10}, {"name": "gone", "messages_in": 1}]
    rows = [{"name": "a", "messages_in": 30}, {"name": "new", "messages_in": 5}]
    add_rates(rows, before, 2.0)
    assert rows == [
        {"name": "a", "messages_in": 30, "messages_in/s": 10.0},
        {"name": "new", "messages_in": 5},
    ]


def test_what_has_begun_anew_since_has_no_rate() -> None:
    rows = [{"name": "restarted", "messages_in": 3, "messages_out": 9}]
    add_rates(rows, [{"name": "restarted", "messages_in": 5000, "messages_out": 1}], 2.0)
    assert "messages_in/s" not in rows[0]
    assert rows[0]["messages_out/s"] == 4.0


def test_without_a_running_system_there_is_a_line_and_no_traceback(kernel: Command, tmp_path: Path) -> None:
    status, _, errors = kernel("status", "--control", tmp_path / "none")
    assert status == 1
    assert errors.startswith("kernel: no answer at")


@pytest.mark.slow
def test_run_listens_where_it_is_told_and_leaves_no_file(kernel: Command, tmp_path: Path) -> None:
    file = tmp_path / "system.toml"
    file.write_text(LISTENER.format(name="one"))
    path = tmp_path / "c.sock"
    with running(file, "--control", str(path)) as it:
        assert it.wait_for("control")["detail"] == str(path)
        it.wait_for("ready")
        [engine] = json.loads(kernel("status", "--control", path, "--json")[1])["engines"]
        assert (engine["name"], engine["state"]) == ("one", "running")
        assert it.stop(signal.SIGTERM) == 0
    assert not path.exists()


@pytest.mark.slow
def test_run_may_be_told_not_to_listen(tmp_path: Path) -> None:
    file = tmp_path / "system.toml"
    file.write_text(LISTENER.format(name="one"))
    with running(file, "--no-control") as it:
        it.wait_for("ready")
        assert all(line["what"] != "control" for line in it.seen)
        assert it.stop(signal.SIGTERM) == 0


def test_status_shows_the_links_of_engines_that_dial(kernel: Command, tmp_path: Path) -> None:
    options = {"addresses": [f"amqp+unix://{tmp_path}/nobody"]}
    plan = Plan(engines=(EnginePlan(name="remote", kind="amqp-client", options=options),))
    with Kernel(plan) as system, ControlServer(system, tmp_path / "c.sock"):
        system.wait_running()
        shown = ""
        while "cannot connect" not in shown:  # the first attempt may be under way
            _, shown, _ = kernel("status", "--control", tmp_path / "c.sock")
    lines = shown.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("Links"))
    assert lines[at + 1].split()[:4] == ["engine", "link", "state", "peer"]
    assert lines[at + 2].split()[:2] == ["remote", "publishing"]


def test_status_shows_what_engines_keep_on_disk(kernel: Command, tmp_path: Path) -> None:
    options = {"address": f"amqp+unix://{tmp_path}/amqp", "data_dir": str(tmp_path / "data")}
    queues = [{"name": "q"}]
    plan = Plan(engines=(EnginePlan(name="broker", kind="amqp", options={**options, "queues": queues}),))
    with Kernel(plan) as system, ControlServer(system, tmp_path / "c.sock"):
        system.wait_running()
        shown = ""
        while "Stores" not in shown:
            _, shown, _ = kernel("status", "--control", tmp_path / "c.sock")
    lines = shown.splitlines()
    at = lines.index(next(line for line in lines if line.startswith("Stores")))
    assert lines[at + 1].split()[:5] == ["engine", "bytes", "segments", "groups", "fsyncs"]
    assert lines[at + 2].split()[0] == "broker"


@pytest.mark.slow
def test_status_shows_what_is_low_and_who_has_to_wait(kernel: Command, tmp_path: Path) -> None:
    options = {"address": "127.0.0.1:0", "queued_limit": 1, "queues": [{"name": "q"}]}
    plan = Plan(engines=(EnginePlan(name="broker", kind="amqp", options=options),))
    control = tmp_path / "c.sock"
    with Kernel(plan) as system, ControlServer(system, control):
        system.wait_running()
        assert "alarms" not in kernel("status", "--control", control)[1]
        with RawClient(int(system.address_of("broker").rpartition(":")[2])) as client:
            while not system.statistics().engines[0].counters["alarms"]:
                client.publish(b"too much", "q")
            shown = kernel("status", "--control", control)[1]
            assert "alarms" in shown
            assert "memory" in shown
            while "blocked" not in kernel("connections", "--control", control)[1]:
                client.publish(b"too much", "q")
