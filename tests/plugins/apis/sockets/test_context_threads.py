"""The poll thread of a context, and its options."""

from __future__ import annotations

import os

import pytest

from kernel.sockets import Context, OptionError
from kernel.threads.poll_thread import PollThread

TIMEOUT = 20.0


def _options_of(context: Context) -> object:
    (thread,) = context.kernel._threads()
    assert isinstance(thread, PollThread)
    return thread._options


def test_the_poll_thread_spins_on_the_processors_that_a_context_names() -> None:
    cpu = min(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    with Context(spin=0.00006, cpus=[cpu]) as context:
        # A ROUTER lends no socket to a thread, so the poll thread passes its messages on.
        router, dealer = context.socket("ROUTER"), context.socket("DEALER")
        dealer.connect(router.bind("tcp://127.0.0.1:0"))
        for number in range(100):
            dealer.send(b"%d" % number)
            router.send_multipart(router.recv_multipart(timeout=TIMEOUT))
            assert dealer.recv(timeout=TIMEOUT) == b"%d" % number
        options = _options_of(context)
        assert (options.spin, options.cpus) == (0.00006, (cpu,))  # type: ignore[attr-defined]


def test_a_context_that_names_none_has_a_thread_as_by_default() -> None:
    with Context() as context:
        context.socket("PULL").bind("inproc://place")
        assert _options_of(context).spin is None  # type: ignore[attr-defined]


def test_a_context_may_have_a_thread_that_always_sleeps_at_once() -> None:
    with Context(spin=0) as context:
        context.socket("PULL").bind("inproc://place")
        assert _options_of(context).spin == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("spin", [-1.0, 1.0, "long"])
def test_options_that_a_thread_cannot_have(spin: float) -> None:
    with (
        Context(spin=spin) as context,
        pytest.raises(OptionError, match="(?s)poll thread of a context.*spin"),
    ):
        context.socket("PULL")
