"""``kernel dry-run`` finds what is not there, and leaves no trace of what it has opened."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernel.topology.plan import EnginePlan, Plan
from kernel.topology.system import Kernel
from tests.kernel.cli.test_commands import Command, kernel

__all__ = ["kernel"]


def engine(name: str, **options: str) -> str:
    return "\n".join(
        (f"[engines.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in options.items()))
    )


def found(kernel: Command, folder: Path, *tables: str) -> tuple[int, dict[str, tuple[Any, str]]]:
    file = folder / "plan.toml"
    file.write_text("\n\n".join(tables))
    status, shown, errors = kernel("dry-run", file, "--json", "--seconds", "20")
    assert errors == ""
    findings = map(json.loads, shown.splitlines())
    return status, {each["where"]: (each["ok"], each["text"]) for each in findings}


@pytest.fixture
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def nobody() -> Iterator[int]:
    """A port that is bound, so that nobody else gets it, and at which nobody listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def test_what_is_there_is_well(kernel: Command, tmp_path: Path, listening: int) -> None:
    status, findings = found(
        kernel,
        tmp_path,
        engine("broker", kind="amqp", address="127.0.0.1:0", data_dir=str(tmp_path / "not" / "yet")),
        engine("link", kind="amqp-client", address=f"127.0.0.1:{listening}")
        .replace("address =", "addresses =")
        .replace(f'"127.0.0.1:{listening}"', f'["127.0.0.1:{listening}"]'),
    )
    assert status == 0
    assert {ok for ok, _ in findings.values()} == {True}
    assert findings["[engines.broker] address"][1].startswith("can listen at")
    assert findings["[engines.link] addresses"][1].startswith(
        f"connected to 'amqp+tcp://127.0.0.1:{listening}'"
    )
    assert "can be written" in findings["[engines.broker] data_dir"][1]
    assert os.listdir(tmp_path) == ["plan.toml"]


def test_what_is_not_there_is_named(kernel: Command, tmp_path: Path, listening: int, nobody: int) -> None:
    (tmp_path / "file").write_text("")
    status, findings = found(
        kernel,
        tmp_path,
        engine(
            "broker", kind="amqp", address=f"127.0.0.1:{listening}", data_dir=str(tmp_path / "file" / "data")
        ),
        engine("mqtt", kind="mqtt-client", address=f"127.0.0.1:{nobody}"),
        engine("stomp", kind="stomp-client", address=f"127.0.0.1:{nobody}"),
        engine("zmq", kind="zmq", type="PUSH").replace(
            "type", f'connect = ["tcp://127.0.0.1:{nobody}"]\ntype'
        ),
        engine("stream", kind="stream", address="backend+unix:///nowhere/at/all.sock"),
    )
    assert status == 1
    assert {ok for ok, _ in findings.values()} == {False}
    assert "Address already in use" in findings["[engines.broker] address"][1]
    assert "is no folder" in findings["[engines.broker] data_dir"][1]
    for where in ("[engines.mqtt] address", "[engines.stomp] address", "[engines.zmq] connect"):
        assert findings[where][1].endswith("Connection refused")
    assert findings["[engines.stream] address"][1].endswith("No such file or directory")


def test_a_peer_that_speaks_no_tls_is_found(kernel: Command, tmp_path: Path) -> None:
    broker = EnginePlan(name="broker", kind="amqp", options={"address": "127.0.0.1:0"})
    with Kernel(Plan(engines=(broker,))) as system:
        system.wait_running()
        port = system.address_of("broker").rpartition(":")[2]
        status, findings = found(
            kernel,
            tmp_path,
            engine("plain", kind="mqtt-client", address=f"127.0.0.1:{port}"),
            engine("tls", kind="mqtt-client", address=f"mqtt+tls://127.0.0.1:{port}"),
        )
    assert status == 1
    assert (findings["[engines.plain] address"][0], findings["[engines.tls] address"][0]) == (True, False)


def test_an_address_from_the_environment_stays_secret(
    kernel: Command, tmp_path: Path, nobody: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLACE", f"127.0.0.1:{nobody}")
    _, findings = found(kernel, tmp_path, engine("mqtt", kind="mqtt-client", address="${PLACE}"))
    ok, text = findings["[engines.mqtt] address"]
    assert ok is False
    assert str(nobody) not in text
    assert "(from the environment)" in text


def test_definitions_are_imported_into_nothing(kernel: Command, tmp_path: Path) -> None:
    file = tmp_path / "d.json"
    file.write_text('{"users": [{"name": "joe", "password_hash": "?"}]}')
    broker = engine("broker", kind="amqp", address="127.0.0.1:0", definitions=str(file))
    status, findings = found(kernel, tmp_path, broker)
    assert status == 1
    said = f"'{file}': $.users[0]: the password hash is no base64: Only base64 data is allowed"
    assert findings["[engines.broker] definitions"] == (False, said)


def test_a_file_with_mistakes_opens_nothing(kernel: Command, tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(engine("broker", kind="amq"))
    status, shown, errors = kernel("dry-run", file)
    assert (status, shown) == (1, "")
    assert "did you mean 'amqp'?" in errors


def test_the_lines_are_for_people(kernel: Command, tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(engine("broker", kind="amqp", address="127.0.0.1:0"))
    status, shown, _ = kernel("dry-run", file)
    assert status == 0
    assert shown.startswith(f"ok     {file}: [engines.broker] address: can listen at")
