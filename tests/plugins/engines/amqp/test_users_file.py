"""Users and virtual hosts that were imported outlive the broker, where it has a data directory."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from stat import S_IMODE
from typing import Any

import pika
import pytest

from kernel.contracts.errors import KernelError
from plugins.engines.broker.host.definition_forms import Definitions, UserDefinition, VhostDefinition
from plugins.engines.broker.host.durability import USERS_FILE
from plugins.engines.broker.host.users_file import UsersFile
from tests.plugins.engines.amqp.conftest import Server
from tests.plugins.engines.amqp.test_importing import TEST12_HASH

Serve = Callable[..., Server]
EVE: dict[str, Any] = {
    "users": [{"name": "eve", "password_hash": TEST12_HASH, "tags": ["monitoring"]}],
    "vhosts": [{"name": "/"}, {"name": "empty"}],
    "permissions": [{"user": "eve", "vhost": "empty", "configure": "^eve-", "write": "", "read": ""}],
    "topic_permissions": [
        {"user": "eve", "vhost": "empty", "exchange": "amq.topic", "write": "^w", "read": "^r"}
    ],
}


def operate(server: Server, document: dict[str, Any]) -> dict[str, Any]:
    done: dict[str, Any] = server.host.call(lambda: server.engine.operate("import-definitions", document))
    return done


def stop(server: Server) -> None:
    server.host.call(server.engine.stop)


@pytest.mark.usefixtures("short_login_delay")
@pytest.mark.peer("pika")
def test_who_was_imported_logs_in_after_a_restart(serve: Serve, tmp_path: Path) -> None:
    first = serve(data_dir=str(tmp_path))
    assert operate(first, EVE)["complaints"] == []
    stop(first)
    second = serve(data_dir=str(tmp_path))
    with second.connect("eve", "test12", virtual_host="empty") as connection:
        channel = connection.channel()
        channel.queue_declare("eve-1")
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
            channel.queue_declare("adam-1")
        assert refused.value.reply_code == 403
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError):
        second.connect("eve", "test12", virtual_host="/")
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        second.connect("eve", "other", virtual_host="empty")
    assert second.engine.users.accounts["eve"].tags == ("monitoring",)
    assert S_IMODE((tmp_path / USERS_FILE).stat().st_mode) == 0o600


def test_the_last_import_counts_and_earlier_ones_stay(serve: Serve, tmp_path: Path) -> None:
    first = serve(data_dir=str(tmp_path))
    operate(first, EVE)
    stop(first)
    second = serve(data_dir=str(tmp_path))
    operate(second, {"users": [{"name": "adam"}, {"name": "eve", "tags": "administrator"}]})
    stop(second)
    third = serve(data_dir=str(tmp_path))
    accounts = third.engine.users.accounts
    assert accounts["eve"].tags == ("administrator",)
    assert set(accounts["eve"].permissions) == {"empty"}
    assert accounts["eve"].topics == {("empty", "amq.topic"): ("^w", "^r")}
    assert "adam" in accounts
    assert "empty" in third.engine.broker.vhosts


def test_what_is_complained_of_is_not_kept(serve: Serve, tmp_path: Path) -> None:
    server = serve(data_dir=str(tmp_path))
    bad = {"user": "nobody", "vhost": "/", "configure": "", "write": "", "read": ""}
    done = operate(server, {**EVE, "permissions": [bad]})
    assert len(done["complaints"]) == 1
    kept = json.loads((tmp_path / USERS_FILE).read_text())
    assert kept["permissions"] == []
    assert [user["name"] for user in kept["users"]] == ["eve"]


def test_without_a_data_directory_nothing_is_written(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert operate(serve(), EVE)["complaints"] == []
    assert os.listdir(tmp_path) == []


def test_a_disk_that_fails_is_told(serve: Serve, tmp_path: Path) -> None:
    server = serve(data_dir=str(tmp_path))
    (tmp_path / f".{USERS_FILE}.new").mkdir()
    (complaint,) = operate(server, EVE)["complaints"]
    assert complaint.startswith("users, virtual hosts and policies will not outlive this broker: ")


def test_a_file_that_cannot_be_read_is_no_empty_one(tmp_path: Path) -> None:
    (tmp_path / USERS_FILE).write_text('{"users": [{"name"')
    with pytest.raises(KernelError, match=r"users\.json: .*; mend it, or move it away"):
        UsersFile(tmp_path).read()


def test_a_crash_while_writing_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = UsersFile(tmp_path)
    kept.add(Definitions(users=[UserDefinition("eve")]))
    before = (tmp_path / USERS_FILE).read_bytes()

    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("kernel.hosting.appending.Disk.sync", fail)
    with pytest.raises(OSError, match="no space"):
        kept.add(Definitions(vhosts=[VhostDefinition("v")]))
    assert (tmp_path / USERS_FILE).read_bytes() == before
    monkeypatch.undo()
    kept.add(Definitions(vhosts=[VhostDefinition("v")]))
    assert UsersFile(tmp_path).read() == Definitions(
        users=[UserDefinition("eve")], vhosts=[VhostDefinition("v")]
    )


def test_what_cannot_be_restored_is_told(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / USERS_FILE).write_text(
        '{"permissions": [{"user": "gone", "vhost": "/", "configure": "", "write": "", "read": ""}]}'
    )
    server = serve(data_dir=str(tmp_path))
    told = [event.detail for event in server.host.events if event.what == "not restored"]
    assert told == ["users.json: $.permissions[0]: there is no user 'gone'"]


def test_global_parameters_outlive_the_broker(serve: Serve, tmp_path: Path) -> None:
    first = serve(data_dir=str(tmp_path))
    both = [{"name": "kept", "value": {"a": [1]}}, {"name": "gone", "value": "x"}]
    assert operate(first, {"global_parameters": both})["complaints"] == []
    gone = {"global_parameters": [{"name": "gone"}]}
    assert first.host.call(lambda: first.engine.operate("delete-definitions", gone))["complaints"] == []
    stop(first)
    second = serve(data_dir=str(tmp_path))
    assert second.engine.broker.global_parameters == {"kept": {"a": [1]}}
