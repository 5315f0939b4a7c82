"""What the owner of a port hears of those who read its messages, and when a subscription is in effect."""

from __future__ import annotations

from kernel.contracts.message import Envelope
from kernel.contracts.router import Outlet
from tests.kernel.dispatcher.conftest import Owner, System


class Asked(Owner):
    """Writes down who asked for what."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, str, str]] = []
        self.in_effect = 0

    def on_asked(self, verb: str, pattern: str, outlet: Outlet) -> None:
        self.asked.append((verb, pattern, outlet.target))

    def on_subscribed(self) -> None:
        self.in_effect += 1

    def news(self) -> list[tuple[str, str, str]]:
        asked, self.asked = self.asked, []
        return asked


def test_the_owner_hears_of_every_subscription_and_the_port_knows_the_union(system: System) -> None:
    system.route("a", "b", "c", router="by-key")
    owner = Asked()
    port = system.port("a", owner=owner)
    b = system.port("b", subscriptions=["early"])
    c = system.port("c")
    system.turn()
    assert owner.news() == [("subscribe", "early", "b")]
    c.subscribe("early")
    c.subscribe("late")
    system.turn()
    assert owner.news() == [("subscribe", "early", "c"), ("subscribe", "late", "c")]
    assert dict(port.asked) == {"early": 2, "late": 1}
    b.unsubscribe("early")
    b.unsubscribe("never subscribed")
    system.turn()
    assert owner.news() == [("unsubscribe", "early", "b")]
    c.close()
    system.turn()
    assert sorted(owner.news()) == [("unsubscribe", "early", "c"), ("unsubscribe", "late", "c")]
    assert dict(port.asked) == {}


def test_a_route_that_is_removed_takes_the_subscriptions_of_its_readers_along(system: System) -> None:
    spec = system.route("a", "b", router="by-key")
    owner = Asked()
    system.port("a", owner=owner)
    b = system.port("b")
    b.subscribe("k")
    system.turn()
    owner.news()
    system.dispatcher.remove_route(spec)
    system.turn()
    assert owner.news() == [("unsubscribe", "k", "b")]


def test_a_member_of_a_group_asks_the_source_for_what_anybody_would(system: System) -> None:
    system.route("a", "b", router="by-key")
    owner = Asked()
    system.port("a", owner=owner)
    system.port("b").subscribe("group:workers:job.#")
    system.turn()
    assert owner.news() == [("subscribe", "job.#", "b")]


def test_the_owner_does_not_hear_of_its_own_subscriptions(system: System) -> None:
    system.route("a", "b", router="by-key")
    system.route("b", "a", router="by-key")
    owner = Asked()
    port = system.port("a", owner=owner)
    system.port("b")
    port.subscribe("mine")
    system.turn()
    assert owner.news() == []


class Bridge(Owner):
    """One end of a connection between two kernels: passes the union on, as hosts of conversations do."""

    def __init__(self, system: System, name: str, passed: list[tuple[str, str, str]]) -> None:
        super().__init__()
        self.other = ""
        self.name = name
        self.system = system
        self.passed = passed

    def on_asked(self, verb: str, pattern: str, outlet: Outlet) -> None:
        count = self.system.ports[self.name].asked.get(pattern, 0)
        there = self.system.ports[self.other]
        if verb == "subscribe" and count == 1:
            self.passed.append((verb, self.name, pattern))
            there.post(lambda: there.subscribe(pattern))
        elif verb == "unsubscribe" and not count:
            self.passed.append((verb, self.name, pattern))
            there.post(lambda: there.unsubscribe(pattern))


def test_a_ring_passes_each_subscription_on_once_in_each_direction(system: System) -> None:
    """Three kernels, each connected to the two others, and everything may go everywhere."""
    passed: list[tuple[str, str, str]] = []
    bridges = {}
    for number in range(3):
        names = [f"k{number}.left", f"k{number}.right", f"k{number}.app"]
        for source in names:
            for target in names:
                if source != target:
                    system.route(source, target, router="by-key")
        for name in names[:2]:
            bridges[name] = Bridge(system, name, passed)
            system.port(name, thread=f"k{number}", owner=bridges[name])
        system.port(names[2], thread=f"k{number}")
    for number in range(3):
        here, there = f"k{number}.right", f"k{(number + 1) % 3}.left"
        bridges[here].other, bridges[there].other = there, here
    system.turn()
    system.ports["k0.app"].subscribe("x")
    for _ in range(100):  # as many turns as it needs, were it to go on for ever
        if not sum(slot.mailbox.process() for slot in system.slots.values()):
            break
    else:
        raise AssertionError("subscriptions go round for ever")
    assert len(passed) == len(set(passed)) <= 6
    assert system.ports["k1.left"].options["subscriptions"] == ["x"]
    assert system.ports["k2.right"].options["subscriptions"] == ["x"]


def test_in_a_chain_the_last_reader_takes_the_subscription_back_everywhere(system: System) -> None:
    passed: list[tuple[str, str, str]] = []
    bridges = {}
    for name, thread in (("k0.right", "k0"), ("k1.left", "k1"), ("k1.right", "k1"), ("k2.left", "k2")):
        bridges[name] = Bridge(system, name, passed)
        system.port(name, thread=thread, owner=bridges[name])
    for near, far in (("k0.right", "k1.left"), ("k1.right", "k2.left")):
        bridges[near].other, bridges[far].other = far, near
    system.route("k1.left", "k1.right", router="by-key")
    system.route("k1.right", "k1.left", router="by-key")
    system.route("k2.left", "one", "two", router="by-key")
    one, two = system.port("one", thread="k2"), system.port("two", thread="k2")
    system.turn()
    one.subscribe("x")
    two.subscribe("x")
    system.turn()
    assert passed == [("subscribe", "k2.left", "x"), ("subscribe", "k1.left", "x")]
    assert system.ports["k0.right"].options["subscriptions"] == ["x"]
    passed.clear()
    one.close()
    system.turn()
    assert passed == []
    two.unsubscribe("x")
    system.turn()
    assert passed == [("unsubscribe", "k2.left", "x"), ("unsubscribe", "k1.left", "x")]
    assert system.ports["k0.right"].options["subscriptions"] == []


# ---------------------------------------------------------------------- in effect


def test_a_subscription_is_in_effect_once_every_source_has_applied_it(system: System) -> None:
    system.route("a", "z", router="by-key")
    system.route("b", "z", router="by-key")
    sources = [system.port("a"), system.port("b")]
    owner = Asked()
    port = system.port("z", owner=owner)
    system.turn()
    assert port.subscribed()
    port.subscribe("k")
    assert not port.subscribed()
    system.turn("a", "z")
    assert not port.subscribed()
    assert owner.in_effect == 0
    system.turn("b", "z")
    assert port.subscribed()
    assert owner.in_effect == 1
    assert all(source.wants(Envelope(key="k")) for source in sources)


def test_a_source_that_has_gone_is_not_waited_for(system: System) -> None:
    system.route("a", "z", router="by-key")
    a = system.port("a")
    port = system.port("z")
    system.turn()
    port.subscribe("k")
    assert not port.subscribed()
    a.close()
    system.turn("z")
    assert port.subscribed()


def test_an_answer_that_comes_after_the_end_of_the_source_changes_nothing(system: System) -> None:
    system.route("a", "z", router="by-key")
    a = system.port("a")
    owner = Asked()
    port = system.port("z", owner=owner)
    system.turn()
    a.close()
    port.subscribe("k")
    system.turn("z")  # sees the end first
    system.turn("a", "z")
    assert port.subscribed()
    port.subscribe("other")
    assert port.subscribed()
