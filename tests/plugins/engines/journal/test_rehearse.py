"""``kernel rehearse``, as it is typed: a recorded feed through two topologies."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernel import Envelope
from kernel.cli.main import run
from kernel.contracts.message import batch_of
from plugins.engines.journal.writer import JournalWriter
from plugins.protocols.journal_format.envelopes import Source

OLD = """
[engines.app]
kind = "native"

[engines.broker]
kind = "amqp"
address = "127.0.0.1:1"
data_dir = "{folder}/never-made"
exchanges = [{{ name = "feed", type = "topic" }}]
queues = [{{ name = "all", arguments = {{ "x-max-length" = 1 }} }}, {{ name = "vienna" }}]
bindings = [
    {{ exchange = "feed", queue = "all", key = "#" }},
    {{ exchange = "feed", queue = "vienna", key = "*.wien" }},
]

[engines.log]
kind = "journal"
path = "{folder}/never-made-either"

[engines.hub]
kind = "hub"

[engines.link]
kind = "stream"
address = "backend+tcp://127.0.0.1:1"

[[routes]]
from = "broker"
to = "log"
match = ["rain.#"]

[[routes]]
from = "app"
to = "hub"

[[routes]]
from = "hub"
to = "link"
confirm = true
"""
Say = Callable[..., tuple[int, str, str]]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """60 messages to the exchange ``feed``, of three keys, 12 of an application, and 5 of an engine that has gone."""
    path = tmp_path / "j"
    with JournalWriter(path) as writer:

        def record(port: str, count: int, key: str, exchange: str = "") -> None:
            batch = batch_of([b"x"] * count, Envelope(key=key, exchange=exchange))
            writer.append([(batch, writer.stamp(), Source(port, "r"))])

        for key in ("rain.wien", "sun.graz", "sun.linz"):
            record("broker", 10, key, "feed")
            record("broker", 10, key, "feed")
        record("app", 5, "x")
        record("app", 7, "y")
        record("gone/10.0.0.1:4000", 5, "z")
    return path


@pytest.fixture
def say(tmp_path: Path, journal: Path, capfd: pytest.CaptureFixture[str]) -> Say:
    def say(old: str, new: str = "", *more: str) -> tuple[int, str, str]:
        arguments = []
        for name, text in (("old.toml", old), ("new.toml", new)):
            if text:
                (tmp_path / name).write_text(text.format(folder=tmp_path))
                arguments.append(str(tmp_path / name))
        files = arguments if len(arguments) == 1 else [arguments[1], "--instead-of", arguments[0]]
        status = run(["rehearse", *files, "--with", str(journal), *more])
        printed = capfd.readouterr()
        return status, printed.out.replace(f"{tmp_path}/", ""), printed.err

    return say


def test_who_gets_what(say: Say, tmp_path: Path) -> None:
    status, out, _ = say(OLD)
    assert status == 0
    assert out.splitlines() == [
        "played 72 messages: 12 from 'app', 60 from 'broker'",
        "not played: 5 messages from 'gone', which is no engine of old.toml",
        # Its limit of one message does not count.
        "broker: queue 'all'               60",
        "    'rain.wien' of exchange 'feed'  20",
        "    'sun.graz' of exchange 'feed'  20",
        "    'sun.linz' of exchange 'feed'  20",
        "broker: queue 'vienna'            20",
        "    'rain.wien' of exchange 'feed'  20",
        "link                              12",
        "    'y'  7",
        "    'x'  5",
        "log                               20",
        "    'rain.wien' of exchange 'feed'  20",
    ]
    # Nothing was opened and nothing was made.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["j", "old.toml"]


def test_what_a_change_changes(say: Say) -> None:
    new = OLD.replace("*.wien", "sun.*").replace('to = "hub"', 'to = "hub"\nmatch = ["y"]')
    status, out, _ = say(OLD, new)
    assert status == 1
    assert out.splitlines() == [
        "played 72 messages: 12 from 'app', 60 from 'broker'",
        "not played: 5 messages from 'gone', which is no engine of new.toml",
        "  broker: queue 'all'               60 -> 60",
        "! broker: queue 'vienna'            20 -> 40",
        "    -20  'rain.wien' of exchange 'feed'",
        "    +20  'sun.graz' of exchange 'feed'",
        "    +20  'sun.linz' of exchange 'feed'",
        "! link                              12 -> 7",
        "    -5  'x'",
        "  log                               20 -> 20",
        "! nobody                             0 -> 5",
        "    +5  'x'",
    ]


def test_without_a_difference(say: Say) -> None:
    status, out, _ = say(OLD, OLD + "# as it was\n")
    assert status == 0
    assert "!" not in out


def test_a_missing_exchange_reaches_nobody(say: Say) -> None:
    new = OLD.replace('name = "feed"', 'name = "food"').replace('exchange = "feed"', 'exchange = "food"')
    status, out, _ = say(OLD, new, "--engine", "broker", "--json")
    assert status == 1
    answer: dict[str, Any] = json.loads(out)
    assert answer["new"]["played"] == {"broker": 60}
    assert answer["new"]["nobody"] == [
        {"exchange": "feed", "key": key, "messages": 20} for key in ("rain.wien", "sun.graz", "sun.linz")
    ]
    assert answer["old"]["nobody"] == []


def test_queues_that_clients_have_declared(say: Say, tmp_path: Path) -> None:
    declared = {
        "vhosts": [{"name": "/"}],
        "queues": [{"name": "theirs", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}],
        "bindings": [
            {
                "source": "feed", "vhost": "/", "destination": "theirs", "destination_type": "queue",
                "routing_key": "sun.#", "arguments": {},
            }
        ],
    }  # fmt: skip
    (tmp_path / "declared.json").write_text(json.dumps(declared))
    status, out, _ = say(OLD, "", "--definitions", f"broker={tmp_path / 'declared.json'}", "--keys", "0")
    assert status == 0
    assert "broker: queue 'theirs'            40" in out.splitlines()


@pytest.mark.parametrize(
    "more, status, error",
    [
        (("--definitions", "broker"), 2, "--definitions 'broker' has to be ENGINE=FILE"),
        (("--definitions", "bro=x.json"), 1, "there is no engine 'bro' in"),
        (("--from", "soon"), 2, "'soon' is neither an offset nor a time"),
    ],
)
def test_what_cannot_be(say: Say, more: tuple[str, ...], status: int, error: str) -> None:
    found, _, err = say(OLD, "", *more)
    assert found == status
    assert error in err


def test_mistakes_of_the_topology(say: Say) -> None:
    status, _, err = say(OLD.replace('to = "log"', 'to = "lok"'))
    assert status == 1
    assert "old.toml" in err
    assert "'lok'" in err
