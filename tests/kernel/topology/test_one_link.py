"""A channel to another program by one call: what the calls promise, between two kernels of this process."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import kernel
from kernel import KernelClosed, KernelError
from tests.ports import free_port


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"unix://{tmp_path / 'link'}"


def test_messages_go_both_ways(address: str) -> None:
    with kernel.listen(address) as here, kernel.connect(address) as there:
        there.send(b"up", key="k")
        message = here.receive_message(timeout=60)
        assert (bytes(message), message.key) == (b"up", "k")
        here.send(b"down")
        assert there.receive(timeout=60) == b"down"


def test_all_who_are_connected_get_what_a_listener_sends(address: str) -> None:
    with (
        kernel.listen(address) as here,
        kernel.connect(address) as first,
        kernel.connect(address) as second,
    ):
        for each in (first, second):
            each.send(b"hello")  # so that both are known to be connected
        for _ in range(2):
            here.receive(timeout=60)
        here.send(b"news")
        assert [first.receive(timeout=60), second.receive(timeout=60)] == [b"news", b"news"]


def test_one_after_the_other_gets_work(address: str) -> None:
    with (
        kernel.listen(address, router="round-robin") as here,
        kernel.connect(address) as first,
        kernel.connect(address) as second,
    ):
        for each in (first, second):
            each.send(b"ready")
        for _ in range(2):
            here.receive(timeout=60)
        for number in range(2):
            here.send(b"%d" % number)
        assert {bytes(first.receive(timeout=60)), bytes(second.receive(timeout=60))} == {b"0", b"1"}


def test_a_request_has_its_own_answer(address: str) -> None:
    with kernel.listen(address, router="reply") as service:
        asked: list[bytes] = []

        def ask() -> None:
            asked.append(bytes(kernel.request(address, b"half past", timeout=60)))

        asking = threading.Thread(target=ask)
        asking.start()
        question = service.receive_message(timeout=60)
        service.reply(question, bytes(question) + b" one")
        asking.join(60)
        assert asked == [b"half past one"]


def test_what_was_sent_last_arrives_although_the_sender_has_left(address: str) -> None:
    with kernel.listen(address) as here:
        with kernel.connect(address) as there:
            there.send_many([b"%d" % number for number in range(1000)])
        got = 0
        while got < 1000:
            got += len(here.receive_many(timeout=60))


def test_nobody_at_the_address_is_an_error_that_names_it(address: str) -> None:
    place = address.removeprefix("unix://")
    with pytest.raises(KernelError, match=place), kernel.connect(address, timeout=0.2):
        raise AssertionError("there is nobody to connect to")


def test_an_address_that_is_taken_is_an_error_that_names_it(address: str) -> None:
    with (
        kernel.listen(address),
        pytest.raises(KernelError, match="in use|already listens"),
        kernel.listen(address),
    ):
        raise AssertionError("somebody listens there already")


def test_the_channel_ends_with_its_block(address: str) -> None:
    with kernel.listen(address) as here:
        pass
    with pytest.raises(KernelClosed):
        here.receive(timeout=60)


@pytest.mark.parametrize("spelling", ["tcp://127.0.0.1:{}", "127.0.0.1:{}", "backend+tcp://127.0.0.1:{}"])
def test_an_address_may_leave_out_the_usual_protocol(spelling: str) -> None:
    address = spelling.format(free_port())
    with kernel.listen(address) as here, kernel.connect(address) as there:
        there.send(b"x")
        assert here.receive(timeout=60) == b"x"
