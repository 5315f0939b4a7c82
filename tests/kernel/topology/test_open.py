"""``kernel.open``: which names it knows, and what type checkers know of what it returns."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from kernel import Channel, EnginePlan, Kernel, KernelError, RoutePlan, TrioChannel
from kernel.contracts.errors import KernelClosed, UnknownName
from kernel.contracts.kinds import ApiKind
from kernel.plugins import Installed, Origin, PluginRegistry
from kernel.testing.fixtures import KernelFactory
from kernel.testing.leaks import Leaks

ROOT = Path(__file__).parents[3]
BUS = (EnginePlan(name="ask", kind="native"), RoutePlan(source="ask", targets=("answer",)))


def test_a_name_that_neither_an_engine_nor_a_route_has_is_refused_with_the_nearest(
    kernel_factory: KernelFactory,
) -> None:
    kernel = kernel_factory(*BUS)
    with pytest.raises(UnknownName, match=r"nothing is called 'anwser'.*did you mean 'answer'\?"):
        kernel.open("anwser")
    with pytest.raises(UnknownName, match="nothing is called 'ask2'"):
        kernel.open("ask2", "trio")
    with kernel.open("ask") as ask, kernel.open("answer") as answer:  # the second is in a route only
        ask.send(b"x")
        assert answer.receive(60) == b"x"


def test_a_refusal_lists_the_names_that_can_be_opened(kernel_factory: KernelFactory) -> None:
    link = EnginePlan(name="link", kind="stream", options={"address": "backend+inproc://x"})
    kernel = kernel_factory(*BUS, link, RoutePlan(source="link", targets=("ask",)), wait=False)
    with pytest.raises(UnknownName, match=r"did you mean 'answer'\? names that can be opened: answer, ask$"):
        kernel.open("anwser")
    with pytest.raises(UnknownName, match=r"'linc', and no route .*; names that can be opened: answer, ask$"):
        kernel.open("linc")  # the engine cannot be opened, so it is not suggested
    with pytest.raises(UnknownName, match=r"'link' is an engine of kind 'stream'.*opened: answer, ask$"):
        kernel.open("link")


def test_an_option_that_the_kind_does_not_have_is_refused_with_those_it_has(
    kernel_factory: KernelFactory,
) -> None:
    kernel = kernel_factory(*BUS)
    with pytest.raises(
        KernelError, match=r"cannot open 'ask': .*`bach`; .*'native' are: auto_confirm, batch"
    ):
        kernel.open("ask", bach=3)


def test_in_an_empty_plan_nothing_can_be_opened_until_it_is_added(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory()
    with pytest.raises(UnknownName, match="nothing is called 'a'"):
        kernel.open("a")
    kernel.add_route(RoutePlan(source="a", targets=("b",)))
    kernel.open("a").close()
    kernel.add_engine(EnginePlan(name="c", kind="native"))
    kernel.open("c").close()


def test_a_class_says_what_is_expected(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(*BUS, EnginePlan(name="task", kind="trio"))
    with kernel.open("ask", Channel) as ask:
        assert isinstance(ask, Channel)
    with pytest.raises(
        KernelError, match="'task' is of kind 'trio', which opens a TrioChannel, not a Channel"
    ):
        kernel.open("task", Channel)
    assert isinstance(kernel.open("task", TrioChannel), TrioChannel)


class Told:
    """An API; the first thread that asks whether it is closed waits for another thread to open one meanwhile."""

    asked = threading.Event()
    other = threading.Event()
    made: ClassVar[list[Told]] = []

    def __init__(self, setup: Any) -> None:
        self.told: list[str] = []
        self.disposed = 0
        self.made.append(self)

    @property
    def closed(self) -> bool:
        if not self.asked.is_set():
            self.asked.set()
            self.other.wait(0.2)
        return False

    def kernel_closed(self, reason: str) -> None:
        self.told.append(reason)

    def dispose(self) -> None:
        self.disposed += 1


class NoOptions(msgspec.Struct):
    pass


def test_each_api_hears_once_that_the_kernel_closes_also_if_threads_open_at_the_same_time(
    kernel_factory: KernelFactory,
) -> None:
    kernel = kernel_factory(registry=with_told())
    opened: list[Told] = [kernel.open("first", "told")]
    thread = threading.Thread(target=lambda: opened.append(kernel.open("second", "told")))
    thread.start()
    assert Told.asked.wait(60)
    opened.append(kernel.open("third", "told"))
    Told.other.set()
    thread.join()
    kernel.close(reason="enough")
    assert [api.told for api in opened] == [["enough"]] * 3


def test_an_api_of_another_class_than_expected_is_disposed_of_once(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(EnginePlan(name="told", kind="told"), registry=with_told())
    Told.asked.set()  # nobody waits for another thread here
    with pytest.raises(KernelError, match="'told' is of kind 'told', which opens a Told, not a Channel"):
        kernel.open("told", Channel)
    kernel.close(linger=0)
    assert kernel.join(60)
    assert Told.made[-1].disposed == 1


class Interrupting(Told):
    """A signal comes while the kernel asks whether it is closed."""

    @property
    def closed(self) -> bool:
        signal.raise_signal(signal.SIGUSR1)
        return False


def test_a_signal_that_interrupts_open_may_close_the_kernel(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(registry=with_told(Interrupting))
    before = signal.signal(signal.SIGUSR1, lambda *_: kernel.close(reason="a signal"))
    try:
        opened: list[Interrupting] = [kernel.open(name, "told") for name in ("first", "second")]
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert [api.told[0] for api in opened] == ["a signal", "the kernel was closed"]


class Closing(Told):
    """Another thread closes the kernel while it is opened."""

    kernel: ClassVar[Kernel]
    when: ClassVar[str] = ""
    caller: Any = None

    def __init__(self, setup: Any) -> None:
        super().__init__(setup)
        if self.when == "behind":
            self.caller = setup.join(self)
        closing = threading.Thread(target=self._end)
        closing.start()
        closing.join(60)
        if self.when == "before":
            setup.join(self)

    def _end(self) -> None:
        self.kernel.close(linger=0)
        assert self.kernel.join(60)

    def dispose(self) -> None:
        super().dispose()
        self.caller.close()


@pytest.mark.parametrize("when", ["before", "behind"])
def test_an_api_that_is_opened_while_the_kernel_ends_leaves_nothing(
    kernel_factory: KernelFactory, when: str
) -> None:
    """Its place in the matrix may be taken before and behind the end."""
    leaks = Leaks()
    kernel = kernel_factory(registry=with_told(Closing))
    Closing.kernel, Closing.when = kernel, when
    if when == "before":
        with pytest.raises(KernelClosed):
            kernel.open("closing", "told")
    else:
        opened: Closing = kernel.open("closing", "told")
        assert opened.told == ["the kernel was closed"]
        assert opened.disposed == 1
    assert leaks.found() == []


class Joined(Told):
    """While it is disposed of, another thread waits for the end of the kernel, too."""

    kernel: ClassVar[Kernel]
    joining: ClassVar[threading.Thread]
    order: ClassVar[list[str]] = []

    def dispose(self) -> None:
        super().dispose()
        if self.disposed == 1:
            begun = threading.Event()

            def join() -> None:
                begun.set()
                assert self.kernel.join(60)
                self.order.append("joined")

            Joined.joining = threading.Thread(target=join)
            self.joining.start()
            assert begun.wait(60)
            # Where nothing held it up, it would be through by now.
            for _ in range(2000):
                os.sched_yield()
            assert self.kernel.join(60), "as a handler of a signal may"
            self.order.append("disposed")


def test_several_threads_may_wait_for_the_end_and_one_of_them_disposes(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(registry=with_told(Joined))
    Joined.kernel = kernel
    opened: Joined = kernel.open("joined", "told")
    kernel.close(linger=0)
    assert kernel.join(60)
    Joined.joining.join(60)
    assert opened.disposed == 1
    assert Joined.order == ["disposed", "joined"]


def with_told(create: type[Told] = Told) -> PluginRegistry:
    registry = PluginRegistry.load()
    kind = ApiKind(name="told", summary="for a test", options=NoOptions, create=create, routed=False)
    registry.apis["told"] = Installed(kind, Origin("told", "test", "1"))
    return registry


RIGHT = """
from kernel import Channel, Kernel, TrioChannel

def use(kernel: Kernel) -> None:
    channel: Channel = kernel.open("a")
    channel.send(b"x", key="k", timeout=1.0)
    by_class: TrioChannel = kernel.open("a", TrioChannel)
    by_name: TrioChannel = kernel.open("a", "trio")
"""
WRONG = ("recieve()", "send('text')", "send(b'', kee='k')", "receive(timeout='1')")


@pytest.mark.slow
def test_mistakes_are_seen_by_mypy(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(RIGHT + "".join(f"    channel.{wrong}\n" for wrong in WRONG))
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False, cwd=ROOT)
    errors = [line.split(":")[1] for line in done.stdout.splitlines() if ": error:" in line]
    assert errors == ["9", "10", "11", "12"], done.stdout
