"""What the import at a start would refuse is found before it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernel.contracts.errors import KernelError
from plugins.engines.broker.broker import Broker
from plugins.engines.broker.contract import BrokerOptions
from plugins.engines.broker.host.definition_forms import always
from plugins.engines.broker.host.importing import import_file
from plugins.engines.broker.host.options import ExchangeOptions
from plugins.engines.broker.host.trial_import import mistakes_in_definitions
from plugins.engines.broker.host.users import Users
from plugins.engines.broker.matchers.direct import DirectMatcher

EXCHANGE = {"name": "x", "vhost": "/", "type": "direct"}
BINDING = {"source": "x", "vhost": "/", "destination": "q", "destination_type": "queue"}
EVERYTHING = {"user": "joe", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}


def found(tmp_path: Path, definitions: dict[str, Any], **options: Any) -> list[str]:
    file = tmp_path / "definitions.json"
    file.write_text(json.dumps(definitions))
    types = {"by-hash": lambda arguments: DirectMatcher()}
    return list(mistakes_in_definitions(BrokerOptions(definitions=str(file), **options), types))


def test_what_is_good_has_no_complaint(tmp_path: Path) -> None:
    definitions = {
        "vhosts": [{"name": "more"}],
        "users": [{"name": "joe", "password": "p"}],
        "permissions": [EVERYTHING],
        "exchanges": [EXCHANGE, {"name": "y", "vhost": "more", "type": "by-hash"}],
        "queues": [{"name": "q", "vhost": "/"}],
        "bindings": [BINDING],
    }
    assert found(tmp_path, definitions) == []


def test_all_complaints_come_at_once(tmp_path: Path) -> None:
    definitions = {
        "permissions": [EVERYTHING],
        "exchanges": [{**EXCHANGE, "type": "none"}],
        "queues": [{"name": "q", "vhost": "/", "arguments": {"x-max-length": -1}}],
        "bindings": [BINDING],
    }
    exchanges, queues = "$.exchanges[0]: COMMAND_INVALID", "$.queues[0]: PRECONDITION_FAILED"
    permissions, bindings = "$.permissions[0]: there is no user 'joe'", "$.bindings[0]: NOT_FOUND"
    said = found(tmp_path, definitions)
    for line, begins in zip(said, (permissions, exchanges, queues, bindings), strict=True):
        assert line.startswith(begins)


def test_what_the_options_declare_is_there(tmp_path: Path) -> None:
    options = {"exchanges": (ExchangeOptions(name="x", type="fanout"),)}
    (line,) = found(tmp_path, {"exchanges": [EXCHANGE]}, **options)
    assert "inequivalent arg 'type' for exchange 'x'" in line
    assert found(tmp_path, {"exchanges": [{**EXCHANGE, "type": "fanout"}]}, **options) == []


def test_what_a_data_dir_may_have_is_not_missed(tmp_path: Path) -> None:
    definitions = {
        "permissions": [{**EVERYTHING, "vhost": "stored"}],
        "topic_permissions": [{"user": "ann", "vhost": "stored", "exchange": "x", "write": "", "read": ""}],
        "queues": [{"name": "q", "vhost": "stored"}],
        "bindings": [{**BINDING, "vhost": "stored"}],
    }
    assert len(found(tmp_path, definitions)) == 4
    assert found(tmp_path, definitions, data_dir=str(tmp_path / "kept")) == []
    definitions["permissions"][0]["read"] = "("
    (line,) = found(tmp_path, definitions, data_dir=str(tmp_path / "kept"))
    assert line.startswith("$.permissions[0]: '(' is no regular expression")


def test_a_file_that_is_not_there_is_for_others_to_name() -> None:
    assert list(mistakes_in_definitions(BrokerOptions(definitions="/nowhere/d.json"), {})) == []


@pytest.mark.parametrize(
    "text, place",
    [
        (b'{"queues": [\n  {"name": "q", "vhost": "/"},\n', "line 3, column 1"),
        (b'{"queues": [\n\n{"name": "\xff"}]}', "line 3"),
    ],
)
def test_a_start_names_the_line_too(tmp_path: Path, text: bytes, place: str) -> None:
    file = tmp_path / "definitions.json"
    file.write_bytes(text)
    (line,) = mistakes_in_definitions(BrokerOptions(definitions=str(file)), {})
    assert line.startswith(f"{place}: these are no definitions: ")
    with pytest.raises(KernelError, match=rf"^definitions = '{file}': {place}: these are no definitions: "):
        import_file(str(file), Broker(), Users({}), 0.0, always)
