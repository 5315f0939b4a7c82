"""The page for operators and its events: who may see what, how often it is looked, and how much is sent."""

from __future__ import annotations

import http.client
import json
import re
from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from kernel.testing.fixtures import KernelFactory
from kernel.testing.memory_wire import SimulatedHost
from kernel.topology.plan import EnginePlan, Plan
from kernel.topology.statistics import EngineStatistics, SystemStatistics
from kernel.topology.system import Kernel
from tests.interop.until import until
from tests.peers import optional
from tests.plugins.engines.web.pages import THREADS, TIMEOUT, USERS, get, watched, web
from tests.ports import free_port

pytestmark = pytest.mark.peer("prometheus-client")

if optional("h11") is not None:
    from plugins.engines.web.answer import Answer, Request
    from plugins.engines.web.live import INTERVAL, LONGEST, Live
    from plugins.engines.web.logins import WebUser
    from plugins.engines.web.look import LARGEST_PAGE, MOST_ROWS

ROOT = Path(__file__).parents[4]
SHOP = {
    "vhosts": ["/", "shop"],
    "users": {**USERS, "clerk": {"password": "guest", "tags": ["management"], "vhosts": ["shop"]}},
}


def event(kernel: Kernel, login: str, query: str = "size=100") -> Any:
    """Return the first event that a user gets."""
    host, port = kernel.address_of("web").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=TIMEOUT)
    headers = {"Authorization": "Basic " + b64encode(login.encode()).decode()} if login else {}
    try:
        connection.request("GET", f"/events?{query}", headers=headers)
        answer = connection.getresponse()
        assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
        line = answer.readline()
        assert line.startswith(b"data: ")
        assert answer.readline() == b"\n"
        return json.loads(line.removeprefix(b"data: "))
    finally:
        connection.close()


def declare(kernel: Kernel, vhost: str, *names: str) -> None:
    for name in names:
        kernel.operate("broker", "declare-queue", {"user": "guest", "vhost": vhost, "name": name})


# The page


def test_the_page_allows_its_own_script_and_style_and_no_others(kernel_factory: KernelFactory) -> None:
    got = get(watched(kernel_factory), "/", "worker:guest")
    assert (got.status, got.headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = dict(part.split(" ", 1) for part in got.headers["content-security-policy"].split("; "))
    for tag in ("script", "style"):
        [content] = re.findall(rf"<{tag}>(.*?)</{tag}>".encode(), got.body, re.DOTALL)
        assert policy[f"{tag}-src"] == f"'sha256-{b64encode(sha256(content).digest()).decode()}'"
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["connect-src"] == "'self'"


def test_the_script_parses_no_text_as_html_or_code() -> None:
    text = files("plugins.engines.web").joinpath("page.html").read_text()
    for dangerous in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "Function("):
        assert dangerous not in text
    assert not re.search(r"<[^>]*\son\w+=", text), "a handler in an attribute"


def test_the_page_is_in_the_package() -> None:
    import tomllib

    package_data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    assert "engines/web/page.html" in package_data["plugins"]


@pytest.mark.parametrize("path", ["/", "/events"])
def test_the_page_asks_for_a_login(path: str, kernel_factory: KernelFactory) -> None:
    got = get(watched(kernel_factory), path)
    assert got.status == 401
    assert got.headers["www-authenticate"].startswith("Basic ")


@pytest.mark.parametrize("path", ["/", "/events"])
def test_a_user_without_a_tag_is_refused(path: str, kernel_factory: KernelFactory) -> None:
    kernel = watched(kernel_factory, users={**USERS, "client": {"password": "guest"}})
    got = get(kernel, path, "client:guest")
    assert got.status == 403
    assert "management" in got.json()["reason"]


# Who sees what


def test_a_user_sees_queues_of_its_virtual_hosts_only(kernel_factory: KernelFactory) -> None:
    kernel = watched(kernel_factory, **SHOP)
    declare(kernel, "/", "secret")
    declare(kernel, "shop", "orders")
    seen = event(kernel, "clerk:guest")
    assert [row["name"] for row in seen["queues"]["rows"]] == ["orders"]
    assert (seen["queues"]["total"], seen["user"], seen["tags"]) == (1, "clerk", ["management"])
    assert event(kernel, "clerk:guest", "size=1&vhost=/&queue=secret")["queues"]["rows"] == []
    assert [row["name"] for row in event(kernel, "guest:guest")["queues"]["rows"]] == ["orders", "secret"]


def test_threads_engines_and_routes_are_for_those_who_monitor(kernel_factory: KernelFactory) -> None:
    kernel = watched(kernel_factory)
    assert "system" not in event(kernel, "worker:guest")
    system = event(kernel, "watcher:pa:ss")["system"]
    assert [thread["name"] for thread in system["threads"]] == ["brokers", "web"]
    assert {engine["name"]: engine["state"] for engine in system["engines"]} == {
        "broker": "running",
        "web": "running",
    }


def test_an_engine_that_reaches_nobody_is_seen(kernel_factory: KernelFactory) -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    dialler, client = {"address": f"backend+tcp://{nowhere}"}, {"addresses": [nowhere]}
    listener = {"address": "backend+tcp://127.0.0.1:0", "mode": "listen"}
    kernel = kernel_factory(
        *THREADS,
        web(),
        EnginePlan(name="bridge", kind="stream", options=dialler),
        EnginePlan(name="link", kind="amqp-client", options=client),
        EnginePlan(name="listener", kind="stream", options=listener),
    )

    def tries() -> dict[str, int]:
        return {engine["name"]: engine["tries"] for engine in event(kernel, "")["system"]["engines"]}

    def both_try() -> bool:
        seen = tries()
        return min(seen["bridge"], seen["link"]) >= 2

    # Each look opens a page, and that it was closed is noticed when it is written to next: not more than may be open.
    until(both_try, every=INTERVAL)
    # Nobody has come there, which is no trouble.
    assert (tries()["listener"], tries()["web"]) == (0, 0)


def test_without_a_broker_the_system_is_shown_to_everybody(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(*THREADS, web())
    seen = event(kernel, "")
    assert (seen["broker"], seen["queues"]["total"]) == ("", 0)
    assert [engine["name"] for engine in seen["system"]["engines"]] == ["web"]


def test_pages_of_other_sites_get_no_events(kernel_factory: KernelFactory) -> None:
    got = get(watched(kernel_factory), "/events", "guest:guest", Origin="http://evil.example")
    assert got.status == 403


@pytest.mark.parametrize("query", ["size=101", "size=-1", "page=0", "page=x", "sort=__class__"])
def test_what_makes_no_sense_is_refused(query: str, kernel_factory: KernelFactory) -> None:
    assert get(watched(kernel_factory), f"/events?{query}", "guest:guest").status == 400


def test_open_pages_leave_connections_to_others(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(*THREADS, web(max_connections=3))
    host, port = kernel.address_of("web").split(":")
    first = http.client.HTTPConnection(host, int(port), timeout=TIMEOUT)
    try:
        first.request("GET", "/events")
        assert first.getresponse().readline()
        assert get(kernel, "/events").status == 503
        assert get(kernel, "/health/ready").status == 200
    finally:
        first.close()


# How often, and how much


class Watched:
    """A system with a broker, whose figures the test makes."""

    def __init__(self) -> None:
        self.plan = Plan(engines=(), routes=())
        self.looks = 0
        self.queues: dict[str, dict[str, dict[str, int]]] = {"/": {}}

    def statistics(self) -> SystemStatistics:
        self.looks += 1
        counters = {"vhosts": {vhost: {"queues": queues} for vhost, queues in self.queues.items()}}
        broker = EngineStatistics(
            name="broker",
            state="running",
            address="",
            failures=0,
            last_failure="",
            next_try=None,
            counters=counters,
        )
        others = tuple(
            EngineStatistics(
                name=f"other-{number}",
                state="running",
                address="",
                failures=1,
                last_failure="long " * 1000,
                next_try=None,
                counters={},
            )
            for number in range(300)
        )
        return SystemStatistics(
            engines=(broker, *others), ports=(), routes=(), pipes=(), threads=(), matrix=(), cells=()
        )

    def add(self, name: str, ready: int = 0, came: int = 0) -> None:
        self.queues["/"][name] = {
            "messages_ready": ready,
            "messages_outstanding": 0,
            "consumers": 0,
            "messages_in": came,
            "messages_out": 0,
        }


class Open:
    """An open page."""

    def __init__(self, live: Live, **query: str) -> None:
        self.events: list[Any] = []
        self.sizes: list[int] = []
        self.takes = True
        self.ended = False
        self.status = 0
        user = WebUser("guest", ("administrator",), frozenset("/"))
        self._gone: Callable[[], None] = lambda: None
        self._live = live
        request = Request("GET", "/events", {}, "x", True, query=query)
        live.answer(request, user, self._begin)

    def _begin(self, answer: Answer) -> None:
        self.status = answer.status
        if answer.begin is not None:
            self._gone = answer.begin(self)

    def write(self, piece: bytes) -> bool:
        if self.takes:
            self.sizes.append(len(piece))
            self.events.append(json.loads(piece.removeprefix(b"data: ")))
        return self.takes

    def end(self) -> None:
        self.ended = True
        self.leave()

    def leave(self) -> None:
        self._gone()

    def names(self) -> list[str]:
        return [row["name"] for row in self.events[-1]["queues"]["rows"]]


@pytest.fixture
def host() -> SimulatedHost:
    return SimulatedHost()


@pytest.fixture
def system() -> Watched:
    return Watched()


@pytest.fixture
def live(host: SimulatedHost, system: Watched) -> Live:
    made: Any = system
    return Live(made, host, "broker", 10)


def later(host: SimulatedHost, seconds: float = 0.0) -> None:
    host.run(host.now() + seconds)


def test_there_is_one_look_a_second_for_all_pages_and_none_without(
    host: SimulatedHost, system: Watched, live: Live
) -> None:
    later(host, 100.0)
    assert system.looks == 0
    pages = [Open(live), Open(live), Open(live, size="10")]
    later(host)
    assert system.looks == 1
    later(host, 10 * INTERVAL)
    assert system.looks == 11
    assert [len(page.events) for page in pages] == [11, 11, 11]
    late = Open(live)
    later(host)
    assert (system.looks, len(late.events)) == (11, 1), "it gets the look that there is"
    for page in (*pages, late):
        page.leave()
    later(host, 100.0)
    assert system.looks == 11


def test_rates_are_those_between_two_looks(host: SimulatedHost, system: Watched, live: Live) -> None:
    system.add("q", came=1000)
    page = Open(live, size="10")
    later(host)
    assert page.events[-1]["queues"]["rows"][0]["in_rate"] == 0
    system.add("q", came=1500)
    later(host, INTERVAL)
    assert page.events[-1]["queues"]["rows"][0]["in_rate"] == 500 / INTERVAL
    # The queue was deleted and declared again.
    system.add("q", came=10)
    later(host, INTERVAL)
    assert page.events[-1]["queues"]["rows"][0]["in_rate"] == 0


def test_an_event_is_bounded_however_much_there_is(host: SimulatedHost, system: Watched, live: Live) -> None:
    for number in range(5000):
        system.add(f"queue {number:04}" + "x" * 200, ready=number)
    page = Open(live, size=str(LARGEST_PAGE), sort="ready", reverse="true", page="2")
    later(host, 3 * INTERVAL)
    seen = page.events[-1]
    assert [row["ready"] for row in seen["queues"]["rows"]] == list(range(4899, 4799, -1))
    assert (seen["queues"]["total"], seen["queues"]["pages"], seen["queues"]["sums"]["ready"]) == (
        5000,
        50,
        sum(range(5000)),
    )
    assert len(seen["system"]["engines"]) == MOST_ROWS
    assert seen["system"]["not_shown"]["engines"] == 301 - MOST_ROWS
    assert max(page.sizes) < 256 * 1024


@pytest.mark.parametrize(
    "query,names",
    [
        ({"name": "EU"}, ["bills.eu", "orders.eu"]),
        ({"queue": "orders.us"}, ["orders.us"]),
        ({"queue": ""}, []),
        ({"vhost": "other"}, []),
        ({"sort": "ready"}, ["orders.us", "orders.eu", "bills.eu"]),
        ({"page": "99", "size": "2"}, ["orders.us"]),
    ],
)
def test_a_view_chooses(
    query: dict[str, str], names: list[str], host: SimulatedHost, system: Watched, live: Live
) -> None:
    for ready, name in enumerate(("orders.us", "orders.eu", "bills.eu")):
        system.add(name, ready)
    page = Open(live, **{"size": "10", **query})
    later(host)
    assert page.names() == names


def test_a_page_that_does_not_take_its_events_holds_up_no_other(
    host: SimulatedHost, system: Watched, live: Live
) -> None:
    slow, quick = Open(live), Open(live)
    slow.takes = False
    later(host, 5 * INTERVAL)
    assert (len(slow.events), len(quick.events)) == (0, 6)


def test_a_stream_ends_after_a_while_so_that_the_user_logs_in_anew(
    host: SimulatedHost, system: Watched, live: Live
) -> None:
    page = Open(live)
    later(host, LONGEST - 1)
    assert not page.ended
    later(host, 2.0)
    assert page.ended
    looks = system.looks
    later(host, 100.0)
    assert system.looks == looks


def test_nothing_is_remembered_of_queues_that_have_gone(
    host: SimulatedHost, system: Watched, live: Live
) -> None:
    Open(live)
    for number in range(20):
        system.queues["/"] = {}
        for name in range(10):
            system.add(f"{number} {name}")
        later(host, INTERVAL)
    assert live._rates is not None
    assert sum(key[0] == "queue in" for key in live._rates._figures) == 10
    assert not live._rates._before
