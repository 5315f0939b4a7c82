"""Fan-out, round robin, by key, reply and others, each on its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.contracts.message import Batch, Envelope, batch_of
from kernel.contracts.router import Outlet
from kernel.routing.by_key import ByKey
from kernel.routing.by_prefix import ByPrefix
from kernel.routing.fan_out import FanOut
from kernel.routing.others import Others
from kernel.routing.reply import Reply
from kernel.routing.round_robin import RoundRobin


class FakeOutlet:
    """An outlet that is full when told so."""

    def __init__(self, target: str = "") -> None:
        self.target = target
        self.blocked = False
        self.suspended = False
        self.is_full = False
        self.waiting = 0

    def full(self) -> bool:
        return self.is_full

    def load(self) -> int:
        return self.waiting


def attach(router: Any, count: int) -> list[FakeOutlet]:
    outlets = [FakeOutlet(f"port/{number}") for number in range(count)]
    for outlet in outlets:
        router.attach(outlet, {})
    return outlets


def chosen(choice: Sequence[tuple[Outlet, Batch]]) -> list[tuple[Outlet, list[bytes]]]:
    return [(outlet, list(batch.bodies)) for outlet, batch in choice]


def test_fan_out_gives_the_batch_itself_to_everybody() -> None:
    router = FanOut()
    outlets = attach(router, 3)
    batch = batch_of([b"x"])
    choice = router.choose(batch)
    assert [outlet for outlet, _ in choice] == outlets
    assert all(part is batch for _, part in choice)
    router.detach(outlets[1])
    assert [outlet for outlet, _ in router.choose(batch)] == [outlets[0], outlets[2]]


def test_reply_takes_the_key_for_an_address_if_there_is_no_other() -> None:
    router = Reply()
    a, b = attach(router, 2)
    assert [outlet for outlet, _ in router.choose(batch_of([b""], Envelope(key="port/1")))] == [b]
    asked = batch_of([b""], Envelope(key="port/1", reply_to="port/0"))
    assert [outlet for outlet, _ in router.choose(asked)] == [a]
    assert router.wants(batch_of([b""], Envelope(key="port/0")))
    assert not router.wants(batch_of([b""], Envelope(key="port/2")))


def test_round_robin_deals_single_messages_in_turn() -> None:
    router = RoundRobin()
    a, b, c = attach(router, 3)
    order = [router.choose(batch_of([b"x"]))[0][0] for _ in range(6)]
    assert order == [a, b, c, a, b, c]


def test_round_robin_deals_a_batch_out_evenly() -> None:
    router = RoundRobin()
    attach(router, 3)
    choice = chosen(router.choose(batch_of([b"%d" % number for number in range(7)])))
    assert [bodies for _, bodies in choice] == [[b"0", b"3", b"6"], [b"1", b"4"], [b"2", b"5"]]


def test_round_robin_gives_to_those_that_have_least() -> None:
    router = RoundRobin()
    a, b, c = attach(router, 3)
    a.waiting = 2
    assert [router.choose(batch_of([b"x"]))[0][0] for _ in range(4)] == [b, c, b, c]
    b.waiting = c.waiting = 5
    assert [router.choose(batch_of([b"x"]))[0][0] for _ in range(2)] == [a, a]


@given(st.lists(st.integers(0, 50), min_size=2, max_size=6), st.integers(2, 100))
def test_a_batch_makes_loads_equal_as_far_as_it_goes(loads: list[int], count: int) -> None:
    router = RoundRobin()
    outlets = attach(router, len(loads))
    for made, load in zip(outlets, loads, strict=True):
        made.waiting = load
    choice = router.choose(batch_of([b"%d" % number for number in range(count)]))
    for outlet, part in choice:
        outlet.waiting += len(part)  # type: ignore[attr-defined]
    assert sorted(int(body) for _, part in choice for body in part.bodies) == list(range(count))
    # Nobody that got something has more than one message more than anybody else.
    least = min(made.waiting for made in outlets)
    assert all(outlet.waiting <= least + 1 for outlet, _ in choice)  # type: ignore[attr-defined]


def test_round_robin_passes_over_those_that_are_full() -> None:
    router = RoundRobin()
    a, b = attach(router, 2)
    a.is_full = True
    assert [chosen(router.choose(batch_of([b"x"])))[0][0] for _ in range(3)] == [b, b, b]
    b.is_full = True
    assert router.choose(batch_of([b"x"])) == ()


@given(st.lists(st.tuples(st.integers(1, 9), st.sets(st.integers(0, 3))), max_size=30))
def test_round_robin_gives_each_message_to_exactly_one(steps: list[tuple[int, set[int]]]) -> None:
    router = RoundRobin()
    outlets = attach(router, 4)
    number = 0
    for count, full in steps:
        for at, outlet in enumerate(outlets):
            outlet.is_full = at in full
        bodies = [b"%d" % (number + at) for at in range(count)]
        number += count
        choice = chosen(router.choose(batch_of(bodies, Envelope(key="k"))))
        dealt = [body for _, part in choice for body in part]
        assert sorted(dealt) == (sorted(bodies) if len(full) < 4 else [])
        assert all(not outlet.full() for outlet, _ in choice)
        sizes = [len(part) for _, part in choice]
        assert not sizes or max(sizes) - min(sizes) <= 1


def test_round_robin_keeps_the_envelope_and_the_parts_of_slices() -> None:
    router = RoundRobin()
    attach(router, 2)
    envelope = Envelope(key="k")
    batch = batch_of([(b"a", b"b"), (b"c", b"d"), (b"e",)], envelope, multipart=True)
    parts = [part for _, part in router.choose(batch)]
    assert all(part.multipart and part.envelope is envelope for part in parts)
    assert [part.size for part in parts] == [3, 2]


def test_by_key_gives_to_subscribers_once_each() -> None:
    router = ByKey()
    a, b = attach(router, 2)
    router.subscribe(a, "x.*")
    router.subscribe(a, "#")
    router.subscribe(b, "y")
    assert [outlet for outlet, _ in router.choose(batch_of([b""], Envelope(key="x.1")))] == [a]
    router.unsubscribe(a, "#")
    router.unsubscribe(a, "never subscribed")
    assert router.choose(batch_of([b""], Envelope(key="z"))) == []


def test_by_prefix_looks_at_keys_and_at_first_octets() -> None:
    router = ByPrefix()
    a, b, c, d = attach(router, 4)
    router.subscribe(a, "prefix:te")
    # As a peer's octets 0xff, and one half of the letter ü (0xc3 0xbc).
    router.subscribe(b, "prefix:\udcff")
    router.subscribe(b, "prefix:\udcc3")
    router.subscribe(c, "tea.*")
    router.subscribe(d, "prefix:")

    def readers(body: object, key: str = "") -> set[Outlet]:
        batch = batch_of([body], Envelope(key=key), multipart=isinstance(body, tuple))
        assert router.wants(batch)
        found = {outlet for outlet, _ in router.choose(batch)}
        assert found == set(router.peek(batch))
        return found

    assert readers(b"", "tea.green") == {a, c, d}
    assert readers(b"tea", "milk") == {d}, "the key counts if there is one"
    assert readers(b"", "ü") == {b, d}
    assert readers(b"tea.green") == {a, d}, "words are in keys only"
    assert readers((bytearray(b"\xff\0"), b"tea")) == {b, d}
    assert readers((memoryview(b"\xc3\xbc"),)) == {b, d}
    assert readers(()) == readers(b"t") == {d}
    router.unsubscribe(a, "prefix:te")
    router.detach(d)
    assert router.choose(batch_of([b"tea"])) == []
    assert not router.wants(batch_of([b"tea"]))


def test_by_prefix_says_when_it_need_not_look() -> None:
    router = ByPrefix()
    a, b = attach(router, 2)
    router.subscribe(a, "prefix:")
    assert not router.all_to_all()
    router.subscribe(b, "prefix:")
    router.subscribe(b, "prefix:")
    assert router.all_to_all()
    router.unsubscribe(b, "prefix:")
    assert router.all_to_all()
    router.unsubscribe(b, "prefix:")
    assert not router.all_to_all()
    router.detach(b)
    assert router.all_to_all()


@pytest.mark.parametrize("pattern", ["group:g:prefix:", "group:g:prefix:t", "group:g:#"])
def test_by_prefix_looks_while_there_are_members_of_groups(pattern: str) -> None:
    router = ByPrefix()
    a, b = attach(router, 2)
    router.subscribe(a, "prefix:")
    router.subscribe(b, "prefix:")
    router.subscribe(a, pattern)
    router.subscribe(b, pattern)
    # One of them gets it twice: once more as the member that was chosen.
    assert len(router.choose(batch_of([b"tea"]))) == 3
    assert not router.all_to_all()
    router.unsubscribe(a, pattern)
    assert not router.all_to_all()
    router.detach(b)
    assert router.all_to_all()


def test_by_prefix_divides_a_batch_and_keeps_its_order() -> None:
    router = ByPrefix()
    a, b, c, d = attach(router, 4)
    router.subscribe(a, "prefix:1")
    router.subscribe(b, "prefix:")
    router.subscribe(c, "group:g:prefix:1")
    router.subscribe(d, "group:g:prefix:1")
    batch = batch_of([b"1a", b"2a", b"1b", b"3"])
    got = dict(chosen(router.choose(batch)))
    assert got[a] == [b"1a", b"1b"]
    assert got[b] == [b"1a", b"2a", b"1b", b"3"]
    assert sorted(got[c] + got[d]) == [b"1a", b"1b"], "of a group one gets each"
    # A batch that all want is not copied.
    assert {id(part) for outlet, part in router.choose(batch) if outlet is b} == {id(batch)}


def test_by_key_forgets_the_subscriptions_of_who_leaves() -> None:
    router = ByKey()
    a, b = attach(router, 2)
    router.subscribe(a, "k")
    router.subscribe(b, "k")
    router.detach(a)
    assert [outlet for outlet, _ in router.choose(batch_of([b""], Envelope(key="k")))] == [b]


def test_subscribing_twice_takes_two_to_unsubscribe() -> None:
    router = ByKey()
    (a,) = attach(router, 1)
    router.subscribe(a, "k")
    router.subscribe(a, "k")
    router.unsubscribe(a, "k")
    assert router.choose(batch_of([b""], Envelope(key="k")))
    router.unsubscribe(a, "k")
    assert not router.choose(batch_of([b""], Envelope(key="k")))


def test_reply_goes_to_the_port_that_the_envelope_names() -> None:
    router = Reply()
    a, b = attach(router, 2)
    batch = batch_of([b""], Envelope(reply_to="port/1"))
    assert [outlet for outlet, _ in router.choose(batch)] == [b]
    router.detach(b)
    assert router.choose(batch) == ()
    router.detach(a)


def test_of_ports_of_one_name_the_last_is_answered_and_none_takes_the_others_along() -> None:
    router = Reply()
    first, second, third = (FakeOutlet("asker") for _ in range(3))
    batch = batch_of([b""], Envelope(reply_to="asker"))
    for outlet in (first, second, third):
        router.attach(outlet, {})
    for gone, answered in ((first, third), (third, second)):
        router.detach(gone)
        assert [outlet for outlet, _ in router.choose(batch)] == [answered]
    router.detach(second)
    assert router.choose(batch) == ()


def test_reply_finds_a_port_by_its_second_name_though_others_have_the_first() -> None:
    router = Reply()
    first, second = FakeOutlet("asker"), FakeOutlet("asker")
    router.attach(first, {"reply_name": "one"})
    router.attach(second, {"reply_name": "two"})
    batch = batch_of([b""], Envelope(reply_to="one"))
    assert [outlet for outlet, _ in router.choose(batch)] == [first]
    router.detach(first)
    assert router.choose(batch) == ()
    assert [outlet for outlet, _ in router.choose(batch_of([b""], Envelope(reply_to="asker")))] == [second]


def test_reply_wants_what_its_asker_is_still_there_for() -> None:
    router = Reply()
    (a,) = attach(router, 1)
    asked = batch_of([b""], Envelope(reply_to=a.target))
    assert router.wants(asked)
    router.detach(a)
    assert not router.wants(asked)


def test_others_are_all_but_the_ports_of_the_name_that_the_envelope_has() -> None:
    router = Others()
    a, b = attach(router, 2)
    namesake = FakeOutlet(a.target)
    router.attach(namesake, {})
    from_a = batch_of([b""], Envelope(reply_to=a.target))
    from_b = batch_of([b""], Envelope(reply_to=b.target))
    assert chosen(router.choose(from_a)) == [(b, [b""])]
    assert chosen(router.choose(from_b)) == [(a, [b""]), (namesake, [b""])]
    assert router.wants(from_a)
    router.detach(b)
    assert not router.wants(from_a)
    assert router.choose(from_a) == []


def test_a_group_of_subscribers_shares_what_matches() -> None:
    router = ByKey()
    a, b, alone = attach(router, 3)
    router.subscribe(a, "group:workers:job.*")
    router.subscribe(b, "group:workers:job.*")
    router.subscribe(alone, "#")
    jobs = [batch_of([b"%d" % number], Envelope(key="job.x")) for number in range(4)]
    got = [outlet for job in jobs for outlet, _ in router.choose(job) if outlet is not alone]
    assert got == [a, b, a, b]
    assert all(alone in dict(router.choose(job)) for job in jobs)
    other = router.choose(batch_of([b""], Envelope(key="other")))
    assert [outlet for outlet, _ in other] == [alone]


def test_each_message_of_a_batch_goes_to_one_member_of_a_group() -> None:
    router = ByKey()
    a, b, c = attach(router, 3)
    for outlet in (a, b, c):
        router.subscribe(outlet, "group:workers:#")
    b.is_full = True
    bodies = [b"%d" % number for number in range(5)]
    dealt = chosen(router.choose(batch_of(bodies, Envelope(key="k"))))
    assert sorted(body for _, part in dealt for body in part) == bodies
    assert {id(outlet) for outlet, _ in dealt} == {id(a), id(c)}, "b is full"


def test_groups_are_told_apart_by_name_and_by_pattern() -> None:
    router = ByKey()
    a, b, c = attach(router, 3)
    router.subscribe(a, "group:one:k")
    router.subscribe(b, "group:two:k")
    router.subscribe(c, "group:one:#")
    job = batch_of([b"x"], Envelope(key="k"))
    assert {id(outlet) for outlet, _ in router.choose(job)} == {id(a), id(b), id(c)}


def test_a_member_of_a_group_is_told_for_which_subscription_it_was_chosen() -> None:
    router = ByKey()
    (pipe,) = attach(router, 1)
    for pattern in ("k", "group:g:k", "group:g:#"):
        router.subscribe(pipe, pattern)
    batch = batch_of([b"1"], Envelope(key="k"))
    groups = sorted(part.group for _, part in router.choose(batch))
    assert groups == ["", "group:g:#", "group:g:k"]
    assert batch.group == ""
    (passed_on,) = [part for _, part in router.choose(batch) if part.group == "group:g:k"]
    router.unsubscribe(pipe, "group:g:#")
    router.unsubscribe(pipe, "group:g:k")
    assert [part.group for _, part in router.choose(passed_on)] == [""]


def test_members_that_leave_a_group_get_nothing_and_the_last_one_ends_it() -> None:
    router = ByKey()
    a, b = attach(router, 2)
    job = batch_of([b"x"], Envelope(key="k"))
    for outlet in (a, b):
        router.subscribe(outlet, "group:g:k")
    router.unsubscribe(a, "group:g:k")
    assert [outlet for _ in range(3) for outlet, _ in router.choose(job)] == [b, b, b]
    router.detach(b)
    assert not router.wants(job)
    assert list(router.choose(job)) == []


def test_looking_at_a_group_does_not_take_its_turn() -> None:
    router = ByKey()
    a, b = attach(router, 2)
    job = batch_of([b"x"], Envelope(key="k"))
    for outlet in (a, b):
        router.subscribe(outlet, "group:g:k")
    got = []
    for _ in range(4):
        assert set(map(id, router.peek(job))) == {id(a), id(b)}
        got += [outlet for outlet, _ in router.choose(job)]
    assert got == [a, b, a, b]
