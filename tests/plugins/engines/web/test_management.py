"""The management API: what RabbitMQ's own answers do not show, since they depend on our limits and on browsers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from kernel.testing.fixtures import KernelFactory
from kernel.topology.plan import EnginePlan
from plugins.engines.broker.host.browsing import PIECE as BROKER_PIECE
from plugins.engines.broker.local.client import BrokerClient
from plugins.engines.web.management.call import Refused, Steps
from plugins.engines.web.management.listing import PIECE, listed
from plugins.engines.web.management.properties_key import properties_key
from plugins.engines.web.management.rates import Rates
from plugins.engines.web.management.routes import ROUTES, find
from plugins.protocols.amqp091.events import Delivered
from plugins.protocols.amqp091.methods import basic
from tests.plugins.engines.amqp.raw_client import RawClient
from tests.plugins.engines.web.pages import THREADS, broker, get, watched, web

pytestmark = pytest.mark.peer("prometheus-client")
GUEST = "guest:guest"


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}],
)
def test_a_page_of_another_site_changes_nothing(
    headers: dict[str, str], kernel_factory: KernelFactory
) -> None:
    kernel = watched(kernel_factory)
    assert get(kernel, "/api/queues/%2F/q", GUEST, "PUT", **headers).status == 403
    assert get(kernel, "/api/queues/%2F/q", GUEST).status == 404


def test_a_page_of_this_site_may_change_something(kernel_factory: KernelFactory) -> None:
    kernel = watched(kernel_factory)
    origin = f"http://{kernel.address_of('web')}"
    headers = {"Origin": origin, "Sec-Fetch-Site": "same-origin"}
    assert get(kernel, "/api/queues/%2F/q", GUEST, "PUT", **headers).status == 201


@pytest.mark.parametrize("login", ["", "guest:wrong", "nobody:guest"])
def test_nothing_is_answered_without_a_login(
    login: str, kernel_factory: KernelFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plugins.engines.web.logins.LOGIN_DELAY", 0.001)
    kernel = watched(kernel_factory)
    refused = {
        f"{route.method} {route.pattern}": get(kernel, f"/api/{route.pattern}", login, route.method).status
        for route in ROUTES
    }
    assert set(refused.values()) == {401}, refused


def test_what_needs_a_tag_is_refused_to_users_without_it(kernel_factory: KernelFactory) -> None:
    users = {
        "none": {"password": "p", "tags": []},
        "worker": {"password": "p", "tags": ["management"]},
        "maker": {"password": "p", "tags": ["policymaker"]},
        "watcher": {"password": "p", "tags": ["monitoring"]},
    }
    kernel = watched(kernel_factory, users=users)
    may = {
        "none": (),
        "worker": ("management",),
        "maker": ("management", "policymaker"),
        "watcher": ("management", "monitoring"),
    }
    for user, tags in may.items():
        for route in ROUTES:
            if route.tag not in tags:
                got = get(kernel, f"/api/{route.pattern}", f"{user}:p", route.method)
                assert (got.status, got.json()["error"]) == (401, "not_authorised"), (user, route)


def test_names_of_clients_that_are_no_utf_8_can_be_listed(kernel_factory: KernelFactory) -> None:
    kernel = watched(kernel_factory)
    kernel.operate(
        "broker",
        "declare-queue",
        {"user": "guest", "vhost": "/", "name": "a\udcff<script>\x00"},
        timeout=30.0,
    )
    [row] = get(kernel, "/api/queues?columns=name", GUEST).json()
    assert row == {"name": "a\\udcff<script>\x00"}


def test_the_rows_of_many_queues_are_complete(kernel_factory: KernelFactory) -> None:
    kernel = watched(kernel_factory)
    count = 2 * PIECE + 1
    queues = [{"name": f"q{number:05}", "vhost": "/", "arguments": {}} for number in range(count)]
    kernel.operate("broker", "import-definitions", {"queues": queues}, timeout=60.0)
    names = [row["name"] for row in get(kernel, "/api/queues?columns=name", GUEST).json()]
    assert names == [queue["name"] for queue in queues]
    last = get(
        kernel, "/api/queues?page=3&page_size=500&columns=name&sort=name&sort_reverse=true", GUEST
    ).json()
    assert last["filtered_count"] == last["total_count"] == count
    assert last["items"] == [{"name": "q00000"}]


def test_the_overview_has_the_sums_of_all_queues(kernel_factory: KernelFactory) -> None:
    kernel = watched(kernel_factory)
    count = 2 * BROKER_PIECE
    queues = [{"name": f"q{number}", "vhost": "/", "arguments": {}} for number in range(count)]
    kernel.operate("broker", "import-definitions", {"queues": queues}, timeout=60.0)
    message = json.dumps(
        {"routing_key": "q7", "payload": "x", "payload_encoding": "string", "properties": {}}
    )
    for _ in range(3):
        assert (
            get(kernel, "/api/exchanges/%2F/amq.default/publish", GUEST, "POST", body=message).status == 200
        )
    overview = get(kernel, "/api/overview", GUEST).json()
    assert overview["object_totals"]["queues"] == count
    assert overview["queue_totals"]["messages_ready"] == 3


def test_nodes_and_channels_have_what_tools_watch(kernel_factory: KernelFactory) -> None:
    kernel = watched(kernel_factory, queues=[{"name": "orders"}])
    with RawClient(int(kernel.address_of("broker").rpartition(":")[2])) as client:
        client.publish(b"x", "orders")
        client.ask(basic.Consume(queue="orders", consumer_tag="c"), basic.ConsumeOk)
        client.wait_for(Delivered)
        [node] = get(kernel, "/api/nodes", GUEST).json()
        for used, total in (
            ("fd_used", "fd_total"),
            ("sockets_used", "sockets_total"),
            ("proc_used", "proc_total"),
        ):
            assert 0 < node[used] < node[total]
        assert get(kernel, "/api/overview", GUEST).json()["message_stats"]["deliver_get"] == 1
        [channel] = get(kernel, "/api/channels", GUEST).json()
        [consumer] = get(kernel, "/api/channels/" + quote(channel["name"], safe=""), GUEST).json()[
            "consumer_details"
        ]
        assert (consumer["consumer_tag"], consumer["queue"]["name"]) == ("c", "orders")


def _run(steps: Steps) -> tuple[int, object]:
    pauses = 0
    while True:
        try:
            next(steps)
            pauses += 1
        except StopIteration as done:
            return pauses, json.loads(b"".join(done.value.body))


def test_a_long_list_is_made_in_pieces() -> None:
    rows = [{"name": str(number), "size": -number} for number in range(3 * PIECE)]
    pauses, made = _run(listed(rows, lambda row: row, {"sort": "size"}))
    assert pauses >= 6, "the order, and the text"
    assert made == list(reversed(rows))


def test_a_column_may_be_within_another_one() -> None:
    rows = [{"name": "a", "inner": {"x": 1, "y": 2}}]
    _, made = _run(listed(rows, lambda row: row, {"columns": "inner.x,none.z"}))
    assert made == [{"inner": {"x": 1}}]


@pytest.mark.parametrize(
    "pattern",
    [
        *("(a+)+$", "a*b*c*", "(a|a)*", "x" * 201, "a?" * 26 + "a" * 26, "(?:a|aa)" * 24 + "$"),
        *("[]+]*a*a*", r"[\]*+a*]", "(a|a*", "(?:a)?"),
    ],
)
def test_a_pattern_that_could_hold_up_the_process_is_refused(pattern: str) -> None:
    rows = [{"name": "a" * 200 + "b"}]
    with pytest.raises(Refused, match="400"):
        _run(listed(rows, lambda row: row, {"page": "1", "name": pattern, "use_regex": "true"}))


@pytest.mark.parametrize("pattern", ["^(a|b)\\.", r"\*\?\+b", "[*+?{|]*x", "a|b|c|d", "(?i)^A.*"])
def test_a_pattern_that_cannot_is_searched(pattern: str) -> None:
    made: Any
    query = {"page": "1", "name": pattern, "use_regex": "true"}
    _, made = _run(listed([{"name": "a.*?+bx"}, {"name": "-"}], lambda row: row, query))
    assert made["filtered_count"] == 1


@pytest.mark.parametrize("path", ["queues/%2F/q", "definitions"])
def test_json_that_is_too_deep_is_refused(kernel_factory: KernelFactory, path: str) -> None:
    kernel = watched(kernel_factory)
    method = "PUT" if "q" in path else "POST"
    refused = get(kernel, f"/api/{path}", "guest:guest", method, body="[" * 200_000)
    assert (refused.status, b"json" in refused.body) == (400, True)


def test_a_policy_that_could_hold_up_the_broker_is_for_administrators(kernel_factory: KernelFactory) -> None:
    users = {
        "guest": {"password": "guest", "tags": ["administrator"]},
        "maker": {"password": "p", "tags": ["policymaker"]},
    }
    kernel = watched(kernel_factory, users=users)
    body = '{"pattern":"%s","definition":{"max-length":1}}'
    slow, quick = body % "(a+)+$", body % "^a.*"
    assert get(kernel, "/api/policies/%2F/p", "maker:p", "PUT", body=slow).status == 400
    assert get(kernel, "/api/policies/%2F/p", "maker:p").status == 404
    assert get(kernel, "/api/policies/%2F/p", "maker:p", "PUT", body=quick).status == 201
    assert get(kernel, "/api/policies/%2F/p", GUEST, "PUT", body=slow).status == 204


def test_consumers_that_wait_for_their_turn_are_not_active(kernel_factory: KernelFactory) -> None:
    mine = EnginePlan(name="mine", kind="broker-client", options={"broker": "broker"})
    kernel = kernel_factory(*THREADS, broker(), web(broker="broker"), mine)
    with kernel.open("mine", BrokerClient) as client:
        client.declare_queue("q", arguments={"x-single-active-consumer": True})
        for tag in ("a", "b"):
            client.consume("q", tag=tag)
        found = get(kernel, "/api/consumers", GUEST).json()
    assert sorted((row["active"], row["activity_status"]) for row in found) == [
        (False, "waiting"),
        (True, "single_active"),
    ]


def test_a_definition_that_is_none_is_a_bad_request(kernel_factory: KernelFactory) -> None:
    kernel = watched(kernel_factory)
    got = get(kernel, "/api/users/x", GUEST, "PUT", body='{"tags":[1],"password":"p"}')
    assert (got.status, got.json()["error"]) == (400, "bad_request")
    assert get(kernel, "/api/users/x", GUEST).status == 404


def test_passwords_are_not_kept_in_plain_text(kernel_factory: KernelFactory, tmp_path: Path) -> None:
    kernel = kernel_factory(*THREADS, broker(data_dir=str(tmp_path)), web(broker="broker"))
    assert (
        get(kernel, "/api/users/x", GUEST, "PUT", body='{"tags":"management","password":"a secret"}').status
        == 201
    )
    assert get(kernel, "/api/whoami", "x:a secret").json() == {"name": "x", "tags": ["management"]}
    assert not any(b"a secret" in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert get(kernel, "/api/users/x", GUEST, "DELETE").status == 204
    assert get(kernel, "/api/users/x", GUEST).status == 404


def test_words_of_a_path_come_before_names() -> None:
    route, _ = find(("users", "without-permissions")).routes["GET"]
    assert route.pattern == "users/without-permissions"


@pytest.mark.parametrize(
    "key, expected", [("", "~"), ("a.b", "a.b"), ("a~b/c", "a%7Eb%2Fc"), ("a b#*", "a+b%23%2A")]
)
def test_a_binding_without_arguments_is_named_as_rabbitmq_names_it(key: str, expected: str) -> None:
    assert properties_key(key, {}) == expected


def test_bindings_that_differ_in_a_type_have_different_names() -> None:
    assert properties_key("k", {"a": 1}) != properties_key("k", {"a": True})


def test_a_rate_is_that_between_two_samples() -> None:
    rates = Rates()
    assert rates.of(("a",), 100, 10.0) == 0.0
    assert rates.of(("a",), 150, 10.5) == 0.0, "too early for another sample"
    assert rates.of(("a",), 300, 20.0) == 20.0
