"""What an application holds in its hand, between threads of one process."""

from __future__ import annotations

import array
import logging
import select
import threading
import time
from typing import Any

import pytest

from kernel.contracts.errors import KernelClosed, TimedOut, WouldBlock, WrongThread
from kernel.contracts.loan import lend
from kernel.contracts.message import PLAIN, Batch, Envelope, Message, batch_of
from kernel.pipes.water_marks import WaterMarks
from kernel.testing.fixtures import KernelFactory
from kernel.testing.leaks import open_descriptors
from kernel.topology.plan import RoutePlan
from kernel.topology.system import Kernel
from plugins.apis.native.channel import Channel


def route(source: str, *targets: str, **options: Any) -> RoutePlan:
    marks = WaterMarks(**options.pop("marks", {}))
    return RoutePlan(source=source, targets=targets, marks=marks, **options)


def pair(kernel_factory: KernelFactory, **options: Any) -> tuple[Kernel, Channel, Channel]:
    """Two channels in this thread, with a route from one to the other."""
    kernel = kernel_factory(route("a", "b", **options))
    return kernel, kernel.open("a"), kernel.open("b")


def in_thread(work: Any) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


# ---------------------------------------------------------------------- sending and receiving


def test_what_is_sent_is_received_in_order(kernel_factory: KernelFactory) -> None:
    _, a, b = pair(kernel_factory)
    for number in range(3000):
        a.send(b"%d" % number)
    assert [b.receive(5) for _ in range(3000)] == [b"%d" % number for number in range(3000)]


def test_single_messages_batches_and_parts_keep_their_order(kernel_factory: KernelFactory) -> None:
    _, a, b = pair(kernel_factory)
    a.send(b"1")
    a.send_many([b"2", b"3"])
    a.send(b"4")
    a.send_parts([b"5", b"-", b"5"])
    a.send(b"6", key="k")
    a.send(b"x" * 100_000)
    a.send(b"8")
    got = [b.receive(5) for _ in range(8)]
    assert got == [b"1", b"2", b"3", b"4", b"5-5", b"6", b"x" * 100_000, b"8"]


def test_receive_waits_for_a_message_from_another_thread(kernel_factory: KernelFactory) -> None:
    kernel, _, b = pair(kernel_factory)
    opened = threading.Event()
    go = threading.Event()

    def send() -> None:
        channel = kernel.open("a2", api="native")
        opened.set()
        go.wait(60)
        channel.send(b"hello")

    kernel.add_route(route("a2", "b"))
    thread = in_thread(send)
    opened.wait(60)
    go.set()
    assert b.receive(60) == b"hello"
    thread.join()


def test_receive_gives_up_after_its_time_out(kernel_factory: KernelFactory) -> None:
    _, _, b = pair(kernel_factory)
    began = time.monotonic()
    with pytest.raises(TimedOut):
        b.receive(0.05)
    assert time.monotonic() - began > 0.04


def test_nowait_raises_would_block(kernel_factory: KernelFactory) -> None:
    _, a, b = pair(kernel_factory, marks={"high": 4})
    with pytest.raises(WouldBlock):
        b.receive_nowait()
    sent = 0
    try:
        for sent in range(100):
            a.send_nowait(b"%d" % sent)
    except WouldBlock:
        pass
    assert 4 <= sent <= 5
    assert b.receive_nowait() == b"0"


def fill(channel: Channel) -> None:
    while True:
        channel.send_nowait(b"x")


def test_how_long_a_call_has_waited_is_said_in_three_digits_and_only_if_it_has(
    kernel_factory: KernelFactory,
) -> None:
    _, a, b = pair(kernel_factory, marks={"high": 4})
    with pytest.raises(TimedOut, match=r"nothing to receive \(waited 0\.00999 s\)$"):
        b.receive(timeout=0.0099911787)
    with pytest.raises(WouldBlock) as empty:
        b.receive_nowait()
    with pytest.raises(WouldBlock) as full:
        fill(a)
    for refused in (empty, full):
        assert "waited" not in str(refused.value)


def test_a_call_that_sends_says_that_no_route_begins_at_its_channel(kernel_factory: KernelFactory) -> None:
    _, _, b = pair(kernel_factory)
    for send in (
        lambda: b.send(b"x", timeout=0.01),
        lambda: b.send_nowait(b"x", key="k"),
        lambda: b.send_many([b"x"], timeout=0),
    ):
        with pytest.raises(WouldBlock, match=r"channel 'b': no route of the running system leaves 'b'"):
            send()


def test_a_call_that_waits_for_ever_without_a_route_is_logged(
    kernel_factory: KernelFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = kernel_factory(route("a", "b"))
    logged = threading.Event()
    log = logging.getLogger(Channel.__module__)
    monkeypatch.setattr(
        log, "warning", lambda text, *args: logged.set() if "no route" in text % args else None
    )
    sent: list[str] = []

    def work() -> None:
        with kernel.open("b") as b:
            b.send(b"x")
            sent.append("x")

    thread = in_thread(work)
    assert logged.wait(60)
    kernel.add_route(route("b", "c"))  # it goes on as soon as there is somebody to send to
    with kernel.open("c") as c:
        assert c.receive(60) == b"x"
    thread.join(60)
    assert sent == ["x"]


def test_send_waits_at_the_high_water_mark(kernel_factory: KernelFactory) -> None:
    _, a, b = pair(kernel_factory, marks={"high": 2})
    a.send(b"1")
    a.send(b"2")
    with pytest.raises(TimedOut):
        a.send(b"3", timeout=0.02)
    assert b.receive_many() == [b"1", b"2"]
    a.send(b"4", timeout=5)
    assert b.receive(5) == b"4"


def test_a_waiting_sender_goes_on_when_the_reader_reads(kernel_factory: KernelFactory) -> None:
    kernel, _, b = pair(kernel_factory)
    kernel.add_route(route("w", "b", marks={"high": 10}))
    total = 5000

    def write() -> None:
        channel = kernel.open("w")
        for number in range(total):
            channel.send(b"%d" % number, timeout=60)
        channel.close()

    thread = in_thread(write)
    assert [b.receive(60) for _ in range(total)] == [b"%d" % number for number in range(total)]
    thread.join()


@pytest.mark.parametrize("when_full", ["drop-newest", "drop-oldest"])
def test_a_dropping_route_never_waits_and_counts(kernel_factory: KernelFactory, when_full: str) -> None:
    kernel, a, b = pair(kernel_factory, marks={"high": 10, "when_full": when_full})
    a.send(b"first", timeout=5)
    for number in range(99):
        a.send(b"%d" % number, timeout=0)
    got = b.receive_many(timeout=5)
    (figures,) = [each for each in kernel.statistics().routes if each.pipes]
    assert len(got) == 10
    assert figures.dropped == 90
    assert (got[0] == b"first") == (when_full == "drop-newest")


def test_a_reader_that_reads_nothing_holds_up_the_others_for_a_moment_only(
    kernel_factory: KernelFactory,
) -> None:
    kernel = kernel_factory(route("a", "stuck", "b", marks={"high": 10, "stall_timeout": 0.01}))
    a, stuck, b = (kernel.open(name) for name in ("a", "stuck", "b"))
    for number in range(1000):
        a.send(b"%d" % number, timeout=20)
        assert b.receive(5) == b"%d" % number
    (figures,) = [each for each in kernel.statistics().routes if each.pipes]
    assert len(stuck.receive_many(timeout=5)) == 10
    assert figures.dropped == 990
    a.send(b"again", timeout=5)
    assert stuck.receive(5) == b"again"


@pytest.mark.parametrize("most", [1, 2, 3, 7, 100])
def test_receive_many_takes_at_most_what_is_asked_and_loses_nothing(
    kernel_factory: KernelFactory, most: int
) -> None:
    _, a, b = pair(kernel_factory)
    total = 50
    a.send_many([b"%d" % number for number in range(30)])
    for number in range(30, total):
        a.send(b"%d" % number)
    got: list[Any] = []
    while len(got) < total:
        chunk = b.receive_many(most, timeout=2)
        assert 1 <= len(chunk) <= most
        got += chunk
    assert got == [b"%d" % number for number in range(total)]


def test_receive_many_returns_what_it_has_when_a_source_has_gone(kernel_factory: KernelFactory) -> None:
    """The end of a pipe looks like input, but is nothing to wait for with messages in hand."""
    kernel, a, b = pair(kernel_factory)
    gone = kernel.open("a")
    a.send(b"1")
    gone.close()
    assert b.receive_many(timeout=0) == [b"1"]


def test_ways_to_receive_may_be_mixed(kernel_factory: KernelFactory) -> None:
    _, a, b = pair(kernel_factory)
    a.send_many([b"%d" % number for number in range(10)], key="k")
    a.send_parts([b"p", b"q"], key="k")
    assert b.receive(5) == b"0"
    assert b.receive_message(5) == Message(b"1", b.receive_message(5).envelope)
    assert b.receive_many(2) == [b"3", b"4"]
    batch = b.receive_batch(2)
    assert (list(batch.bodies), batch.envelope.key) == ([b"5", b"6"], "k")
    assert b.receive() == b"7"
    assert list(b.receive_batch().bodies) == [b"8", b"9"]
    assert b.receive_message(5).parts == (b"p", b"q")


def test_keys_and_envelopes_travel_with_their_messages(kernel_factory: KernelFactory) -> None:
    _, a, b = pair(kernel_factory)
    envelope = Envelope(key="k", exchange="x", properties={"content_type": "text/plain"})
    a.send_message(Message(b"1", envelope))
    a.send_message(Message(b"", envelope, (b"2", b"3")))
    a.send(b"4", key="other")
    first, second, third = (b.receive_message(5) for _ in range(3))
    assert first.envelope is second.envelope is envelope
    assert (second.body, second.parts) == (b"23", (b"2", b"3"))
    assert third.key == "other"


def test_single_messages_keep_their_keys_and_their_order_on_the_fast_path(
    kernel_factory: KernelFactory,
) -> None:
    _, a, b = pair(kernel_factory, marks={"high": 8})
    own = Envelope(key="own", exchange="x")
    a.send(b"0", key="first")  # asks for credit, and has some left
    a.send(b"1", key="k")
    a.send(b"2")
    a.send_message(Message(b"3", own))
    a.send_message(Message(bytearray(b"4"), own))
    a.send(b"5", key="k")
    a.send_message(Message(b"6"))
    got = [b.receive_message(5) for _ in range(7)]
    assert [(bytes(message.body), message.key) for message in got] == [
        (b"0", "first"),
        (b"1", "k"),
        (b"2", ""),
        (b"3", "own"),
        (b"4", "own"),
        (b"5", "k"),
        (b"6", ""),
    ]
    assert got[1].envelope is got[5].envelope
    assert got[3].envelope is got[4].envelope is own
    a.send(b"7", key="k")
    a.send(b"8", key="k")
    a.send(b"9", key="l")
    assert b.receive_many(timeout=5) == [b"7", b"8", b"9"]
    a.send(b"10", key="k")
    a.send(b"11", key="k")
    a.send(b"12", key="l")
    assert list(b.receive_batch(timeout=5).bodies) == [b"10", b"11"]
    assert b.receive(5) == b"12"
    # As many as the pipe holds, whether they have a key or not.
    for number in range(8):
        a.send_nowait(b"x", key=f"{number}")
    with pytest.raises(WouldBlock):
        a.send_nowait(b"x", key="more")
    assert len(b.receive_many(timeout=5)) == 8


def test_batches_pass_as_they_are(kernel_factory: KernelFactory) -> None:
    _, a, b = pair(kernel_factory)
    batch = batch_of([b"1", b"2"], Envelope(key="k"))
    a.send_batches([batch])
    assert b.receive_batch(timeout=5) is batch


def test_empty_batches_are_nothing(kernel_factory: KernelFactory) -> None:
    _, a, b = pair(kernel_factory)
    a.send_many([])
    a.send_batches([Batch([], 0)])
    a.send(b"1")
    assert b.receive_many(timeout=5) == [b"1"]


def test_a_message_of_no_parts_is_refused(kernel_factory: KernelFactory) -> None:
    _, a, _ = pair(kernel_factory)
    with pytest.raises(ValueError, match="parts"):
        a.send_parts([])


def test_iteration_receives_until_the_kernel_is_closed(kernel_factory: KernelFactory) -> None:
    kernel, a, b = pair(kernel_factory)
    a.send_many([b"1", b"2", b"3"])
    got = []
    for body in b:
        got.append(body)
        if body == b"3":
            kernel.close()
    assert got == [b"1", b"2", b"3"]


def test_a_descriptor_tells_select_when_something_has_come(kernel_factory: KernelFactory) -> None:
    kernel, _, b = pair(kernel_factory)
    kernel.add_route(route("w", "b"))
    go = threading.Event()

    def write() -> None:
        channel = kernel.open("w")
        for number in range(3):
            go.wait(60)
            go.clear()
            channel.send(b"%d" % number)

    thread = in_thread(write)
    for number in range(3):
        with pytest.raises(WouldBlock):
            b.receive_nowait()
        go.set()
        got: list[Any] = []
        while not got:
            assert select.select([b], [], [], 60)[0], "nothing told that there is something"
            try:
                while True:
                    got.append(b.receive_nowait())
            except WouldBlock:
                pass
        assert got == [b"%d" % number]
    thread.join()


def test_select_waits_for_several_channels_at_once(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(route("w", "b"), route("v", "c"))
    writers = {name: kernel.open(name) for name in "wv"}
    readers = [kernel.open("b"), kernel.open("c")]
    for reader in readers:
        with pytest.raises(WouldBlock):
            reader.receive_nowait()
    for name, reader in (("v", readers[1]), ("w", readers[0])):
        writers[name].send(name.encode())
        assert select.select(readers, [], [], 60)[0] == [reader]
        assert reader.receive_nowait() == name.encode()
        with pytest.raises(WouldBlock):
            reader.receive_nowait()


def test_the_descriptor_is_quiet_once_everything_is_received(kernel_factory: KernelFactory) -> None:
    _, a, b = pair(kernel_factory)
    a.send(b"1")
    wakes = 0
    got: list[Any] = []
    while select.select([b], [], [], 0.02)[0]:
        wakes += 1
        assert wakes < 10, "the descriptor stays readable though nothing is there"
        try:
            while True:
                got.append(b.receive_nowait())
        except WouldBlock:
            pass
    assert got == [b"1"]


# ---------------------------------------------------------------------- routing


def test_keys_reach_their_subscribers(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(route("a", "b", "c", router="by-key"))
    a = kernel.open("a")
    b = kernel.open("b", subscriptions=("fruit.*",))
    c = kernel.open("c")
    c.subscribe("prefix:fruit.app")
    c.subscribe("#.end")
    a.send(b"finish", key="the.end")
    for key in ("fruit.apple", "fruit.pear", "stone"):
        a.send(key.encode(), key=key)
    assert b.receive_many(timeout=5) == [b"fruit.apple", b"fruit.pear"]
    assert c.receive_many(timeout=5) == [b"finish", b"fruit.apple"]
    c.unsubscribe("#.end")
    a.send(b"unwanted", key="the.end")
    a.send(b"wanted", key="fruit.apple")
    assert c.receive(5) == b"wanted"


def test_a_reply_goes_back_to_the_asker(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(route("client", "server"), route("server", "client", "other", router="reply"))
    client, server, other = kernel.open("client"), kernel.open("server"), kernel.open("other")
    client.send_message(Message(b"question", Envelope(reply_to="client")))
    question = server.receive_message(5)
    server.reply(question, b"answer")
    assert client.receive(5) == b"answer"
    with pytest.raises(WouldBlock):
        other.receive_nowait()


def test_the_same_body_object_reaches_every_subscriber(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(route("a", "b", "c"))
    a, b, c = (kernel.open(name) for name in "abc")
    body = bytes(10_000)
    a.send(body)
    assert b.receive(5) is body
    assert c.receive(5) is body


def test_a_user_buffer_is_not_copied_and_is_given_back(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(route("a", "b", "c"))
    a, b, c = (kernel.open(name) for name in "abc")
    returned = threading.Event()
    buffer = bytearray(b"x" * 100_000)
    a.send(lend(buffer, returned.set))
    one, other = b.receive(5), c.receive(5)
    buffer[0] = ord("y")
    assert bytes(one[:1]) == bytes(other[:1]) == b"y"
    assert not returned.is_set()
    del one, other
    with pytest.raises(WouldBlock):
        b.receive_nowait()
    with pytest.raises(WouldBlock):
        c.receive_nowait()
    assert returned.wait(5)


def test_any_buffer_counts_in_bytes(kernel_factory: KernelFactory) -> None:
    _, a, b = pair(kernel_factory)
    numbers = array.array("i", [1, 2, 3])
    for body in (numbers, memoryview(numbers)):
        a.send(body)  # type: ignore[arg-type]
        assert len(b.receive(5)) == 12
    a.send_many([memoryview(numbers)])
    assert len(b.receive(5)) == 12
    a.send_parts([memoryview(numbers), b"x"])
    assert len(b.receive(5)) == 13


# ---------------------------------------------------------------------- confirmation


def test_wait_confirmed_returns_when_the_receiver_comes_back_for_more(kernel_factory: KernelFactory) -> None:
    _, a, b = pair(kernel_factory, confirm=True)
    a.send(b"1")
    a.send(b"2")
    with pytest.raises(TimedOut):
        a.wait_confirmed(0.02)
    assert b.receive_many(timeout=5) == [b"1", b"2"]
    with pytest.raises(WouldBlock):
        b.receive_nowait()
    a.wait_confirmed(5)
    assert a.statistics().unconfirmed == 0


def test_confirm_covers_what_was_received_and_no_more(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(route("a", "b", confirm=True))
    a, b = kernel.open("a"), kernel.open("b", auto_confirm=False)
    a.send_many([b"%d" % number for number in range(4)])
    assert b.receive(5) == b"0"
    b.confirm()
    b.close()
    again = kernel.open("b", auto_confirm=False)
    a.send(b"4", timeout=5)
    assert again.receive_many(5, timeout=5)[:3] == [b"1", b"2", b"3"]


def test_what_a_closed_channel_did_not_receive_goes_to_the_next(kernel_factory: KernelFactory) -> None:
    kernel, a, b = pair(kernel_factory)
    a.send(b"1")
    b.close()
    again = kernel.open("b")
    a.send(b"2", timeout=5)
    assert [again.receive(5), again.receive(5)] == [b"1", b"2"]


# ---------------------------------------------------------------------- misuse and the end


@pytest.mark.parametrize("body", ["text", 1, None, ["list"]])
def test_a_body_that_is_no_buffer_is_refused_at_the_call(kernel_factory: KernelFactory, body: Any) -> None:
    _, a, _ = pair(kernel_factory)
    for send in (a.send, lambda it: a.send_many([it]), lambda it: a.send_parts([it])):
        with pytest.raises(TypeError, match=f"bytes.*{type(body).__name__}"):
            send(body)


def test_a_view_with_gaps_is_refused_at_the_call(kernel_factory: KernelFactory) -> None:
    _, a, _ = pair(kernel_factory)
    view = memoryview(b"every other one")[::2]
    for send in (a.send, lambda it: a.send_many([it]), lambda it: a.send_parts([it])):
        with pytest.raises(TypeError, match="gaps"):
            send(view)


def test_a_mistake_says_what_would_be_right(kernel_factory: KernelFactory) -> None:
    _, a, _ = pair(kernel_factory)
    anything: Any = a
    with pytest.raises(TypeError, match=r"takes a kernel\.Message, not bytes"):
        anything.send_message(b"x")
    with pytest.raises(TypeError, match="send_message sends it"):
        anything.send(Message(b"x"))
    with pytest.raises(TypeError, match="headers are a dictionary"):
        anything.send(b"x", headers=[1])


def test_a_channel_refuses_another_thread(kernel_factory: KernelFactory) -> None:
    _, a, b = pair(kernel_factory)
    errors: list[BaseException] = []

    def misuse() -> None:
        for call in (lambda: a.send(b"x"), b.receive_nowait, lambda: b.subscribe("k"), a.wait_confirmed):
            try:
                call()
            except WrongThread as error:
                errors.append(error)

    in_thread(misuse).join()
    assert len(errors) == 4
    assert "another" in str(errors[0]) or "belongs to the thread" in str(errors[0])


def test_a_closed_channel_says_so(kernel_factory: KernelFactory) -> None:
    _, a, b = pair(kernel_factory)
    with b:
        pass
    a.close()
    for call in (lambda: a.send(b"x"), b.receive, lambda: b.receive_many(timeout=0), a.wait_confirmed):
        with pytest.raises(KernelClosed, match="closed"):
            call()


def test_closing_the_kernel_wakes_whoever_receives(kernel_factory: KernelFactory) -> None:
    kernel, _, _ = pair(kernel_factory)
    opened = threading.Event()
    caught: list[str] = []

    def receive() -> None:
        channel = kernel.open("b")
        opened.set()
        try:
            channel.receive()
        except KernelClosed as error:
            caught.append(str(error))

    thread = in_thread(receive)
    opened.wait(60)
    kernel.close(reason="that is enough")
    thread.join(60)
    assert not thread.is_alive()
    assert "that is enough" in caught[0]


def test_closing_the_kernel_wakes_whoever_waits_to_send(kernel_factory: KernelFactory) -> None:
    kernel, _, b = pair(kernel_factory)
    kernel.add_route(route("w", "b", marks={"high": 2}))
    full = threading.Event()
    caught: list[BaseException] = []

    def send() -> None:
        channel = kernel.open("w")
        try:
            for _ in range(10):
                try:
                    channel.send_nowait(b"x")
                except WouldBlock:
                    full.set()
                    channel.send(b"y")
        except KernelClosed as error:
            caught.append(error)

    thread = in_thread(send)
    assert full.wait(60)
    kernel.close()
    thread.join(60)
    assert len(caught) == 1
    assert b is not None


def test_a_call_after_the_kernel_is_closed_says_so(kernel_factory: KernelFactory) -> None:
    kernel, a, _ = pair(kernel_factory)
    a.send(b"warm up")
    kernel.close()
    with pytest.raises(KernelClosed):
        a.send(b"x")
    with pytest.raises(KernelClosed):
        kernel.open("z")


def test_channels_that_come_and_go_leave_nothing_behind(kernel_factory: KernelFactory) -> None:
    kernel, _, b = pair(kernel_factory)
    before = len(open_descriptors())
    for number in range(50):
        with kernel.open("a") as channel:
            channel.send(b"%d" % number)
        assert b.receive(5) == b"%d" % number
    assert len(open_descriptors()) < before + 10, (
        "the thread that is still starting has some, the channels none"
    )


def test_repr_tells_the_state(kernel_factory: KernelFactory) -> None:
    _, a, _ = pair(kernel_factory)
    assert repr(a) == "<Channel a open>"
    a.close()
    assert repr(a) == "<Channel a closed>"


def test_plain_messages_share_the_plain_envelope(kernel_factory: KernelFactory) -> None:
    _, a, b = pair(kernel_factory)
    a.send(b"1")
    assert b.receive_message(5).envelope is PLAIN


def test_only_what_was_received_is_confirmed_when_sources_that_wait_for_it_come_and_go(
    kernel_factory: KernelFactory,
) -> None:
    kernel = kernel_factory(route("careful", "b", confirm=True), route("careless", "b"))
    b = kernel.open("b", auto_confirm=False)
    careless = kernel.open("careless")
    with kernel.open("careful") as careful:
        careful.send(b"1")
        assert b.receive(5) == b"1"
        careless.send_many([b"2", b"3", b"4"])
        assert b.receive(5) == b"2"
        b.confirm()
        careful.wait_confirmed(5)
    assert b.receive_many(2, timeout=5) == [b"3", b"4"]
    with pytest.raises(WouldBlock):
        b.receive_nowait()
    with kernel.open("careful") as careful:
        careful.send_many([b"5", b"6", b"7"])
        assert b.receive(5) == b"5"
        b.confirm()
        with pytest.raises(TimedOut):
            careful.wait_confirmed(0)
        assert b._port.take_again().batches[0].bodies == [b"6", b"7"]


def test_what_was_there_before_somebody_waited_is_not_counted(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(route("careful", "b", confirm=True), route("careless", "b"))
    b = kernel.open("b", auto_confirm=False)
    kernel.open("careless").send_many([b"1", b"2", b"3"])
    assert b.receive(5) == b"1"
    with kernel.open("careful") as careful:
        b.confirm()
        assert b.receive_many(2, timeout=5) == [b"2", b"3"]
        careful.send_many([b"4", b"5", b"6"])
        assert b.receive(5) == b"4"
        b.confirm()
        with pytest.raises(TimedOut):
            careful.wait_confirmed(0)


def test_a_consumer_that_leaves_its_block_has_dealt_with_what_it_received(
    kernel_factory: KernelFactory,
) -> None:
    kernel = kernel_factory(route("a", "b", confirm=True))
    with kernel.open("a") as a:
        with kernel.open("b") as b:
            a.send_many([b"1", b"2", b"3", b"4", b"5"])
            assert [b.receive(5) for _ in range(3)] == [b"1", b"2", b"3"]
        with kernel.open("b") as b:
            a.serve()
            assert b.receive_many(timeout=5) == [b"4", b"5"]
        a.wait_confirmed(5)


def test_what_a_consumer_received_before_it_failed_is_delivered_again(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(route("a", "b", confirm=True))
    with kernel.open("a") as a:
        with pytest.raises(ZeroDivisionError):
            _receive_and_fail(kernel, a)
        with kernel.open("b") as b:
            a.serve()
            assert b.receive_many(timeout=5) == [b"1", b"2", b"3"]
        a.wait_confirmed(5)


def _receive_and_fail(kernel: Kernel, a: Channel) -> None:
    with kernel.open("b") as b:
        a.send_many([b"1", b"2", b"3"])
        assert b.receive(5) == b"1"
        raise ZeroDivisionError


def test_a_consumer_that_confirms_by_itself_confirms_nothing_by_leaving(
    kernel_factory: KernelFactory,
) -> None:
    kernel = kernel_factory(route("a", "b", confirm=True))
    with kernel.open("a") as a:
        with kernel.open("b", auto_confirm=False) as b:
            a.send_many([b"1", b"2"])
            assert b.receive(5) == b"1"
        with kernel.open("b") as b:
            a.serve()
            assert b.receive_many(timeout=5) == [b"1", b"2"]
