"""Policies of a running broker: from its options, from definitions, and after a restart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kernel.contracts.errors import KernelError
from plugins.engines.broker.host.options import ExchangeOptions, PolicyOptions, QueueOptions
from tests.plugins.engines.amqp.still_host import StillServer

Still = Callable[..., StillServer]
BOUNDED = PolicyOptions(pattern="^orders", definition={"max-length": 2})
IMPORTED: dict[str, Any] = {
    "name": "bounded",
    "vhost": "/",
    "pattern": "^orders",
    "apply-to": "queues",
    "definition": {"max-length": 1, "ha-mode": "all"},
    "priority": 3,
}
QUEUES = (QueueOptions(name="orders"), QueueOptions(name="bills"))


def applied(server: StillServer) -> tuple[dict[str, str], int | None]:
    """Return which policy each queue has, and the limit of one of them."""
    rows = {row["name"]: row["policy"] for row in server.engine.inspect("queues")}
    return rows, server.engine.broker.vhost("/").queues["orders"].policy.max_length


def test_policies_of_the_options_change_while_the_broker_runs(still: Still) -> None:
    server = still(queues=QUEUES, policies={"bounded": BOUNDED})
    assert applied(server) == ({"orders": "bounded", "bills": ""}, 2)
    more = {"bounded": BOUNDED, "other": PolicyOptions(pattern="", priority=1, definition={"max-length": 7})}
    server.engine.take_options(msgspec.structs.replace(server.engine.options, policies=more))
    assert applied(server) == ({"orders": "other", "bills": "other"}, 7)
    server.engine.take_options(msgspec.structs.replace(server.engine.options, policies={}))
    assert applied(server) == ({"orders": "", "bills": ""}, None)


def test_imported_policies_are_shown_and_outlive_a_restart(still: Still, tmp_path: Path) -> None:
    options: dict[str, Any] = {"queues": QUEUES, "policies": {"bounded": BOUNDED}, "data_dir": str(tmp_path)}
    first = still(**options)
    done = first.engine.operate("import-definitions", {"policies": [IMPORTED]})
    assert done["counts"]["policies"] == 1
    assert done["complaints"] == []
    assert done["ignored"] == ["$.policies[0]: ha-mode is not supported in a policy"]
    assert applied(first) == ({"orders": "bounded", "bills": ""}, 1)
    assert first.engine.inspect("policies") == [IMPORTED]
    first.engine.stop()
    second = still(**options)
    assert applied(second) == ({"orders": "bounded", "bills": ""}, 1)


@pytest.mark.parametrize(
    "change, complaint",
    [
        ({"pattern": "("}, "is no regular expression"),
        ({"definition": {"max-length": "many"}}, "max-length = 'many'"),
        ({"vhost": "elsewhere"}, "vhost elsewhere not found"),
    ],
)
def test_a_policy_that_cannot_be_imported_is_named(
    still: Still, change: dict[str, Any], complaint: str
) -> None:
    done = still().engine.operate("import-definitions", {"policies": [IMPORTED | change]})
    (said,) = done["complaints"]
    assert said.startswith("$.policies[0]: ")
    assert complaint in said


def test_policies_for_something_else_are_ignored_and_told(still: Still) -> None:
    server = still(queues=QUEUES)
    done = server.engine.operate("import-definitions", {"policies": [IMPORTED | {"apply-to": "streams"}]})
    assert done["ignored"] == ["$.policies[0]: policies for streams are not supported"]
    assert applied(server) == ({"orders": "", "bills": ""}, None)


def test_a_policy_applies_to_queues_or_exchanges_or_both(still: Still) -> None:
    exchanges = (ExchangeOptions(name="orders", type="topic"), ExchangeOptions(name="bills"))

    def named(apply_to: str, priority: int, pattern: str = "^orders") -> PolicyOptions:
        return PolicyOptions(
            pattern=pattern,
            priority=priority,
            apply_to=apply_to,
            definition={"alternate-exchange": "amq.fanout"},
        )

    def of_exchanges() -> dict[str, str]:
        rows = {row["name"]: row["policy"] for row in server.engine.inspect("exchanges")}
        return {name: policy for name, policy in rows.items() if policy}

    policies = {"some": named("exchanges", 2), "all": named("all", 1, "")}
    server = still(queues=QUEUES, exchanges=exchanges, policies=policies)
    system = {f"amq.{name}": "all" for name in ("direct", "fanout", "topic", "headers", "match")}
    assert of_exchanges() == {"orders": "some", "bills": "all"} | system
    assert applied(server) == ({"orders": "all", "bills": "all"}, None)
    server.engine.take_options(
        msgspec.structs.replace(server.engine.options, policies={"some": named("exchanges", 2)})
    )
    assert of_exchanges() == {"orders": "some"}
    assert applied(server) == ({"orders": "", "bills": ""}, None)


def test_a_policy_that_somebody_has_spoilt_is_named_with_its_file(still: Still, tmp_path: Path) -> None:
    document = {"policies": [IMPORTED | {"pattern": "("}]}
    (tmp_path / "users.json").write_bytes(msgspec.json.encode(document))
    with pytest.raises(KernelError, match=r"users\.json: policy 'bounded': pattern = '\(' is no regular"):
        still(data_dir=str(tmp_path))


@pytest.mark.parametrize("wrong", [{"max-length": -1}, {"ha-mode": "all"}, {"alternate-exchange": 1}])
def test_a_definition_of_the_options_is_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="max-length|ha-mode|alternate-exchange"):
        PolicyOptions(pattern="", definition=wrong)
