"""The page for operators in a browser: it shows what happens, and does what an operator asks for."""

from __future__ import annotations

import http.client
import json
import re
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.interop.browser import Tab, tab
from tests.interop.managed_brokers import Managed, watched_broker

pytestmark = [
    pytest.mark.peer("chromium"),
    pytest.mark.peer("pika"),
    pytest.mark.peer("prometheus-client"),
    pytest.mark.slow,
]

HUNDRED = 100
"""Events that are given to the page in one go."""
EVIL = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"


@pytest.fixture(scope="module")
def broker() -> Iterator[Managed]:
    with watched_broker() as watched:
        api(watched, "PUT", "users/reader", {"password": "guest", "tags": "management"})
        api(watched, "PUT", "permissions/%2F/reader", {"configure": "^$", "write": "^$", "read": ".*"})
        yield watched


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with tab(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture
def page(browser: Tab, broker: Managed) -> Iterator[Tab]:
    browser.seen.clear()
    show(browser, broker)
    yield browser
    # Refusals of the API are in the console as well; they are what some of the tests ask for.
    wrong = [seen["params"] for seen in browser.seen if seen["method"] == "Runtime.exceptionThrown"]
    blocked = [
        seen["params"]["entry"]["text"]
        for seen in browser.seen
        if seen["method"] == "Log.entryAdded"
        and seen["params"]["entry"]["source"] in ("security", "violation")
    ]
    assert (wrong, blocked) == ([], [])


@pytest.fixture
def channel(broker: Managed) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika.ConnectionParameters(port=broker.amqp)) as connection:
        yield connection.channel()


def show(browser: Tab, broker: Managed, place: str = "", user: str = "guest") -> None:
    """Open the page as if it were the first time: as a browser that has asked for the password."""
    browser.open("about:blank")
    login = b64encode(f"{user}:guest".encode()).decode()
    browser.ask("Network.setExtraHTTPHeaders", headers={"Authorization": f"Basic {login}"})
    browser.open(f"http://127.0.0.1:{broker.web}/{place}")
    browser.until("document.documentElement.dataset.events > 0")


def go(page: Tab, *place: str) -> None:
    page.value(f"void (location.hash = {json.dumps('#' + '/'.join(quote(part, safe='') for part in place))})")


def shows(page: Tab, text: str, where: str = "main") -> None:
    page.until(f"document.querySelector('{where}').innerText.includes({json.dumps(text)})")


def click(page: Tab, text: str, where: str = "main") -> None:
    """Click on what has this text."""
    found = f"[...document.querySelectorAll('{where} :is(a, button)')].find((each) => each.textContent === {json.dumps(text)})"
    page.until(f"{found} !== undefined")
    page.value(f"void {found}.click()")


def tile(name: str) -> str:
    """An expression for the figure with this title; undefined until it is there."""
    return f"[...document.querySelectorAll('.tile')].find((each) => each.firstChild.textContent === '{name}')?.children[1].textContent"


def api(broker: Managed, method: str, path: str, body: object = None) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", broker.web, timeout=60)
    try:
        login = b64encode(b"guest:guest").decode()
        content = None if body is None else json.dumps(body)
        connection.request(method, f"/api/{path}", content, {"Authorization": f"Basic {login}"})
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status < 300, text
        return json.loads(text) if text else None
    finally:
        connection.close()


def test_the_browser_asks_for_a_password(broker: Managed, browser: Tab) -> None:
    browser.open("about:blank")
    browser.ask("Network.setExtraHTTPHeaders", headers={})
    browser.ask("Fetch.enable", handleAuthRequests=True)
    try:
        browser.seen.clear()
        # It does not end before somebody has answered the question for the password.
        browser.value(f"void setTimeout(() => location.assign('http://127.0.0.1:{broker.web}/'))")
        asked = browser.heard("Fetch.requestPaused")
        browser.ask("Fetch.continueRequest", requestId=asked["requestId"])
        challenge = browser.heard("Fetch.authRequired")
        assert challenge["authChallenge"]["scheme"] == "basic"
        browser.ask(
            "Fetch.continueWithAuth",
            requestId=challenge["requestId"],
            authChallengeResponse={"response": "CancelAuth"},
        )
    finally:
        browser.ask("Fetch.disable")


def test_figures_move_when_somebody_publishes(page: Tab, channel: BlockingChannel) -> None:
    channel.queue_declare("live")
    ready = page.value(tile("Ready in queues"))
    for _ in range(7):
        channel.basic_publish("", "live", b"x")
    page.until(f"{tile('Ready in queues')} !== {json.dumps(ready)}")
    go(page, "queue", "/", "live")
    page.until(f"{tile('Ready')} === '7'")
    channel.queue_purge("live")
    page.until(f"{tile('Ready')} === '0'")


def test_the_matrix_and_the_engines_are_shown(page: Tab) -> None:
    page.until("document.querySelectorAll('svg text').length > 0")
    assert page.value("document.querySelectorAll('.cell-none').length") == 4, "two threads"
    shows(page, "broker")
    shows(page, "running")


def test_an_engine_that_reaches_nobody_is_trouble(page: Tab) -> None:
    page.until("source.onmessage !== null && view !== null")
    seen = page.value(
        """(() => {
          const engine = { kind: 'stream', state: 'running', address: '', failures: 0, in_rate: 0, out_rate: 0 };
          source.onmessage({ data: JSON.stringify({
            broker: 'broker', user: 'guest', tags: [],
            queues: {
              total: 0, matched: 0, page: 1, pages: 1, rows: [],
              sums: { ready: 0, unacked: 0, consumers: 0, in_rate: 0, out_rate: 0 },
            },
            system: {
              threads: [], cells: [], routes: [], not_shown: { threads: 0, engines: 0, routes: 0 },
              engines: [{ ...engine, name: 'far', tries: 3 }, { ...engine, name: 'near', tries: 0 }],
            },
          }) });
          return document.body.innerText;
        })()"""
    )
    assert "1 not connected" in seen
    assert re.search(r"far\tstream\tnot connected\t.*tried 3", seen)
    assert re.search(r"near\tstream\trunning", seen)


def test_from_a_queue_to_its_bindings_and_who_publishes_and_consumes(
    page: Tab, channel: BlockingChannel
) -> None:
    channel.queue_declare("orders")
    channel.queue_bind("orders", "amq.topic", "orders.#")
    channel.basic_consume("orders", lambda *_: None, consumer_tag="worker")
    channel.basic_publish("amq.topic", "orders.eu", b"x")
    port = channel.connection._impl._transport._sock.getsockname()[1]
    click(page, "Queues", "nav")
    click(page, "orders")
    shows(page, "orders.#")
    shows(page, "worker")
    shows(page, f"127.0.0.1:{port}")
    click(page, "amq.topic")
    shows(page, "Exchange amq.topic")
    shows(page, "orders.#")
    click(page, f"127.0.0.1:{port}")
    shows(page, "It consumes")
    click(page, "orders")
    shows(page, "Who consumes")


def test_a_purge_is_confirmed_first(page: Tab, channel: BlockingChannel) -> None:
    channel.queue_declare("full")
    for _ in range(3):
        channel.basic_publish("", "full", b"x")
    go(page, "queue", "/", "full")
    page.until(f"{tile('Ready')} === '3'")
    click(page, "Purge…")
    shows(page, "Its 3 ready messages are deleted from full", "dialog")
    click(page, "Cancel", "dialog")
    assert channel.queue_declare("full", passive=True).method.message_count == 3
    click(page, "Purge…")
    click(page, "Purge", "dialog")
    page.until(f"{tile('Ready')} === '0'")
    assert channel.queue_declare("full", passive=True).method.message_count == 0


def test_declare_publish_get_and_delete(page: Tab, broker: Managed) -> None:
    click(page, "Queues", "nav")
    click(page, "Declare a queue…")
    page.type("made here")
    page.press("Enter")
    shows(page, "Queue made here")
    click(page, "Publish…")
    page.value("void document.querySelector('dialog textarea').focus()")
    page.type("<b>bold</b>")
    click(page, "Publish", "dialog")
    page.until(f"{tile('Ready')} === '1'")
    click(page, "Get messages…")
    click(page, "Get", "dialog")
    page.until("document.querySelector('dialog pre')?.textContent === '<b>bold</b>'")
    click(page, "Close", "dialog")
    click(page, "Delete…")
    click(page, "Delete", "dialog")
    page.until("location.hash === '#queues'")
    assert "made here" not in [row["name"] for row in api(broker, "GET", "queues")]


def test_a_connection_is_closed(page: Tab, broker: Managed) -> None:
    own_name = {"connection_name": f"shop {EVIL}"}
    parameters = pika.ConnectionParameters(port=broker.amqp, client_properties=own_name)
    connection = pika.BlockingConnection(parameters)
    name = f"127.0.0.1:{connection._impl._transport._sock.getsockname()[1]}"
    click(page, "Connections", "nav")
    shows(page, "shop <img")
    click(page, name)
    shows(page, "shop <img")
    click(page, "Close…")
    click(page, "Close it", "dialog")
    page.until("location.hash === '#connections'")
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="closed by an operator"):
        connection.process_data_events(60)
    assert page.value("document.title") != "taken"


def test_what_a_user_may_not_do_is_said(browser: Tab, broker: Managed, channel: BlockingChannel) -> None:
    channel.queue_declare("kept")
    channel.basic_publish("", "kept", b"x")
    show(browser, broker, "#queue/%2F/kept", "reader")
    browser.until(f"{tile('Ready')} === '1'")
    click(browser, "Delete…")
    click(browser, "Delete", "dialog")
    shows(browser, "reader may not do this", "dialog")
    assert channel.queue_declare("kept", passive=True).method.message_count == 1
    browser.press("Escape")
    go(browser, "overview")
    shows(browser, "shown to users with the tag monitoring")


def test_names_of_strangers_are_text(page: Tab, channel: BlockingChannel) -> None:
    channel.exchange_declare(EVIL, "topic")
    channel.queue_declare(EVIL)
    channel.queue_bind(EVIL, EVIL, EVIL)
    channel.basic_consume(EVIL, lambda *_: None, consumer_tag=EVIL)
    channel.basic_publish(EVIL, EVIL, EVIL.encode())
    go(page, "queues")
    click(page, EVIL)
    shows(page, f"Queue {EVIL}")
    page.until("document.querySelectorAll('tbody tr').length >= 3")
    click(page, "Purge…")
    shows(page, EVIL, "dialog")
    page.press("Escape")
    channel.cancel()
    click(page, EVIL)
    shows(page, f"Exchange {EVIL}")
    go(page, "exchanges")
    shows(page, EVIL)
    # Also what is an address: it must lead nowhere else.
    assert page.value("[...document.links].every((each) => each.origin === location.origin)")
    assert page.value("document.title") == "Messaging kernel"
    assert page.value("document.querySelectorAll('img, main script').length") == 0


def test_by_keyboard_alone(page: Tab, channel: BlockingChannel) -> None:
    channel.queue_declare("aaa by keyboard")
    channel.basic_publish("", "aaa by keyboard", b"x")

    def tab_to(text: str) -> None:
        for _ in range(60):
            page.press("Tab")
            if page.value("document.activeElement.textContent") == text:
                # Focus can be seen.
                assert page.value("getComputedStyle(document.activeElement).outlineStyle") == "solid"
                return
        raise AssertionError(f"{text} has no focus")

    tab_to("Queues")
    page.press("Enter")
    shows(page, "aaa by keyboard")
    tab_to("aaa by keyboard")
    page.press("Enter")
    page.until(f"{tile('Ready')} === '1'")
    tab_to("Purge…")
    page.press("Enter")
    page.until("document.querySelector('dialog').open")
    assert page.value("document.activeElement.textContent") == "Cancel", "Enter does no harm"
    page.press("Escape")
    page.until("!document.querySelector('dialog').open")
    assert page.value("document.activeElement.textContent") == "Purge…"
    page.press("Enter")
    page.press("Tab")
    page.press("Enter")
    page.until(f"{tile('Ready')} === '0'")
    page.press("Escape")
    page.until("location.hash === '#queues'")


def test_the_focus_stays_while_figures_change(page: Tab, channel: BlockingChannel) -> None:
    channel.queue_declare("focused")
    go(page, "queues")
    page.until("[...document.querySelectorAll('tbody a')].some((each) => each.textContent === 'focused')")
    page.value(
        "void [...document.querySelectorAll('tbody a')].find((each) => each.textContent === 'focused').focus()"
    )
    for name in ("a new one before it", "another"):
        channel.queue_declare(name)
        shows(page, name)
    assert page.value("document.activeElement.textContent") == "focused"


def test_thousands_of_queues_are_filtered_sorted_and_paged(page: Tab, broker: Managed) -> None:
    definitions = {"queues": [{"name": f"many.{n:04}", "vhost": "/", "durable": False} for n in range(1000)]}
    api(broker, "POST", "definitions", definitions)
    go(page, "queues")
    page.until("document.querySelectorAll('tbody tr').length === 50")
    click(page, "Next")
    shows(page, "page 2 of")
    page.value("void document.querySelector('input[type=search]').focus()")
    page.type("many.099")
    shows(page, "10 of ")
    assert page.value("document.querySelectorAll('tbody tr').length") == 10
    click(page, "Queue")
    page.until("document.querySelector('tbody a').textContent === 'many.0999'")


def test_the_page_does_not_grow(page: Tab, channel: BlockingChannel) -> None:
    """What a page of two hours gets, at once: rows, curves and elements stay as many as they are."""
    channel.queue_declare("grown")
    for place in ("overview", "queues"):
        go(page, place)
        page.until("source.onmessage !== null && view !== null")
        found = page.value(
            """(() => {
              const event = (n) => ({ data: JSON.stringify({
                broker: 'broker', user: 'guest', tags: [],
                queues: {
                  total: 60, matched: 60, page: 1, pages: 1,
                  sums: { ready: n, unacked: 0, consumers: 0, in_rate: n % 7, out_rate: n % 5 },
                  rows: Array.from({ length: 50 }, (_, i) =>
                    ({ vhost: '/', name: `q${n}.${i}`, ready: n, unacked: 0, consumers: 0, in_rate: n, out_rate: 0 })),
                },
                system: {
                  threads: [{ name: 'one', engines: [] }, { name: 'two', engines: [] }],
                  cells: [{ from: 0, to: 1, pipes: 1, depth: n, fill: (n % 10) / 10, rate: n, dropping: 0, blocked: 0, suspended: 0, dropped: 0 }],
                  engines: [{ name: `e${n}`, kind: 'amqp', state: 'running', address: '', failures: 0, in_rate: 0, out_rate: 0 }],
                  routes: [{ name: `r${n}`, rate: n, depth: 0, written: n, lost: 0 }],
                  not_shown: { threads: 0, engines: 0, routes: 0 },
                },
              }) });
              const count = () => document.getElementsByTagName('*').length;
              const feed = source.onmessage;
              for (let n = 0; n < 200; n += 1) feed(event(n));
              const before = count();
              for (let n = 200; n < 1200; n += 1) feed(event(n));
              return [before, count(), Math.max(...Object.values(past).map((each) => each.length))];
            })()"""
        )
        assert found[0] == found[1]
        assert found[2] == page.value("HISTORY")


def test_two_hours_of_events_leave_nothing_in_memory(page: Tab, channel: BlockingChannel) -> None:
    """As many events as a page gets in two hours, at once, each with other queues; garbage is collected first."""
    channel.queue_declare("grown")
    go(page, "queues")
    page.until("source.onmessage !== null && view !== null && document.querySelector('tbody tr') !== null")
    page.value(
        """void (() => {
          window.sent = 0;
          window.feedOn = (count) => {
            for (const end = sent + count; sent < end; sent += 1) {
              source.onmessage({ data: JSON.stringify({
                broker: 'broker', user: 'guest', tags: [],
                queues: {
                  total: 1000, matched: 1000, page: 1, pages: 20,
                  sums: { ready: sent, unacked: 0, consumers: 0, in_rate: sent % 7, out_rate: 0 },
                  rows: Array.from({ length: 50 }, (_, i) => ({ vhost: '/', name: `q${sent}.${i}`, ready: sent,
                    unacked: 0, consumers: 0, in_rate: 0, out_rate: 0 })),
                },
              }) });
            }
          };
        })()"""
    )

    def used_after(count: int) -> int:
        for _ in range(count // HUNDRED):
            page.value(f"feedOn({HUNDRED})")
        page.ask("HeapProfiler.collectGarbage")
        heap: int = page.ask("Runtime.getHeapUsage")["usedSize"]
        return heap

    before = used_after(1200)
    after = used_after(6000)
    # An event that stayed would be 10 KB, and all of them 60 MB.
    assert after - before < 2 * 2**20


@contextmanager
def metrics(page: Tab, **wanted: Any) -> Iterator[None]:
    page.ask("Emulation.setDeviceMetricsOverride", **wanted)
    try:
        yield
    finally:
        page.ask("Emulation.clearDeviceMetricsOverride")


def test_a_phone_shows_it_without_scrolling_sideways(page: Tab, channel: BlockingChannel) -> None:
    channel.queue_declare("a queue with a long name." * 5)
    with metrics(page, width=360, height=740, deviceScaleFactor=1, mobile=True):
        for place in ("overview", "queues", "connections", "exchanges"):
            go(page, place)
            page.until("document.querySelector('tbody tr') !== null")
            assert page.value("document.documentElement.scrollWidth") <= 360, place
            if place != "overview":
                assert page.value(
                    "[...document.querySelectorAll('.scroll')].every((each) => each.scrollWidth <= each.clientWidth)"
                ), place


def test_it_is_dark_where_the_reader_wants_it(page: Tab) -> None:
    def lightness() -> int:
        found = page.value("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, found.removeprefix("rgb(").removesuffix(")").split(",")))

    page.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    dark = lightness()
    page.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "light"}])
    assert dark < 200 < lightness()
