"""What an acknowledgement means is said for each source, and the weakest hop counts."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from kernel.contracts.assurance import LEVELS, rank
from kernel.plugins import PluginRegistry
from kernel.topology.check import plan_of_text
from kernel.topology.proving import Proof, prove
from tests.kernel.cli.test_commands import Command, kernel
from tests.notes import for_each

__all__ = ["kernel"]

REGISTRY = PluginRegistry.load()
BROKER = '[engines.broker]\nkind = "amqp"\n'
DURABLE = f'{BROKER}data_dir = "data"\n'
APP = '[engines.app]\nkind = "native"\n'
LINK = '[engines.link]\nkind = "stream"\naddress = "backend+tcp://127.0.0.1:1"\n'
FAR = '[engines.far]\nkind = "amqp-client"\n'


def route(source: str, target: str, *more: str) -> str:
    return "\n".join(("[[routes]]", f'from = "{source}"', f'to = "{target}"', *more, ""))


def proved(*tables: str) -> dict[str, Proof]:
    return {
        proof.source: proof
        for proof in prove(plan_of_text("\n".join(tables), REGISTRY, "plan.toml"), REGISTRY)
    }


@pytest.mark.parametrize(
    "broker, level",
    [(BROKER, "memory"), (DURABLE, "disk"), (f"{DURABLE}fsync = false\n", "system")],
)
def test_a_broker_alone_is_as_safe_as_its_store(broker: str, level: str) -> None:
    proof = proved(broker)["broker"]
    assert (proof.level, proof.weakest) == (level, "broker")
    assert "basic.ack" in proof.acknowledges


@pytest.mark.parametrize(
    "more, level, why",
    [
        ((), "memory", "it has no confirm = true"),
        (("confirm = true",), "peer", "far: the server confirms it"),
        (('when_full = "drop-newest"',), "nothing", "drops messages"),
    ],
)
def test_a_route_beside_the_store_is_a_hop(more: tuple[str, ...], level: str, why: str) -> None:
    proof = proved(DURABLE, FAR, route("broker", "far", *more))["broker"]
    assert [hop.level for hop in proof.hops] == ["disk", level]
    assert why in proof.hops[1].why
    # The word of another system counts as disk.
    assert rank(proof.level) == min(rank("disk"), rank(level))  # type: ignore[arg-type]


def test_a_bridge_is_as_safe_as_where_it_leads() -> None:
    proofs = proved(LINK, DURABLE, route("link", "broker", "confirm = true"))
    assert (proofs["link"].level, proofs["link"].acknowledges) == ("disk", "CONFIRM of the backend protocol")
    # What ends here without a route has nobody who waits for it but its own clients.
    assert set(proofs) == {"link", "broker"}


def test_the_weakest_of_several_destinations_counts() -> None:
    both = 'to = ["far", "app"]'
    tables = (LINK, FAR, APP, '[[routes]]\nfrom = "link"\n' + both + "\nconfirm = true\n")
    proof = proved(*tables)["link"]
    assert (proof.level, proof.hops[0].why) == ("memory", "app: the application has taken it")
    careful = APP + "auto_confirm = false\n"
    assert proved(LINK, FAR, careful, tables[3])["link"].level == "peer"


def test_dead_letters_are_a_destination() -> None:
    more = ("confirm = true", 'dead_letters = "broker"')
    assert proved(LINK, FAR, DURABLE, route("link", "far", *more))["link"].level in ("disk", "peer")
    assert proved(LINK, FAR, BROKER, route("link", "far", *more))["link"].level == "memory"


@pytest.mark.parametrize("qos, level", [("", "peer"), ("qos = 0\n", "sent"), ("qos = 1\n", "peer")])
def test_qos_0_is_only_sent(qos: str, level: str) -> None:
    mqtt = f'[engines.mqtt]\nkind = "mqtt-client"\naddress = "127.0.0.1:1883"\n{qos}'
    assert proved(APP, mqtt, route("app", "mqtt", "confirm = true"))["app"].level == level


def test_a_kind_that_states_nothing_assures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = msgspec.structs.replace(REGISTRY.engines["zmq"].kind, assures=None)
    installed = msgspec.structs.replace(REGISTRY.engines["zmq"], kind=silent)
    monkeypatch.setitem(REGISTRY.engines, "zmq", installed)
    zmq = '[engines.zmq]\nkind = "zmq"\ntype = "PULL"\nbind = ["tcp://127.0.0.1:0"]\n'
    proof = proved(zmq, DURABLE, route("zmq", "broker", "confirm = true"))["zmq"]
    assert (proof.level, proof.hops[0].why) == (
        "nothing",
        "kind 'zmq' does not state what its acknowledgement means",
    )


@for_each(
    "table, level",
    [
        ('kind = "zmq"\ntype = "PUSH"\nbind = ["tcp://127.0.0.1:0"]\n', "sent"),
        ('kind = "zmq"\ntype = "PUB"\nbind = ["tcp://127.0.0.1:0"]\n', "sent"),
        ('kind = "pgm"\nmode = "send"\naddress = "zmtp1+epgm://lo;239.192.1.1:5557"\n', "sent"),
        (
            'kind = "one-to-many"\nmode = "send"\naddress = "switchover+tcp://127.0.0.1:0"\ngroup = "epgm://lo;239.192.1.1:5557"\n',
            "peer",
        ),
        ('kind = "sctp"\naddress = "backend+sctp://127.0.0.1:5558"\n', "peer"),
        ('kind = "sctp"\naddress = "plain+sctp://127.0.0.1:5558"\n', "sent"),
        ('kind = "stream"\naddress = "backend+sctp://127.0.0.1:5558"\n', "peer"),
    ],
)
def test_a_peer_that_does_not_confirm_is_only_sent_to(table: str, level: str) -> None:
    proof = proved(APP, f"[engines.far]\n{table}", route("app", "far", "confirm = true"))["app"]
    assert (proof.level, proof.weakest) == (level, "app -> far")


SOURCES = {
    "zmq": ('kind = "zmq"\ntype = "PULL"\nbind = ["tcp://127.0.0.1:0"]\n', ""),
    "pgm": ('kind = "pgm"\nmode = "receive"\naddress = "zmtp1+epgm://lo;239.192.1.1:5557"\n', ""),
    "feed": ('kind = "one-to-many"\nmode = "receive"\naddress = "switchover+tcp://127.0.0.1:1"\n', "ACK"),
    "plain": ('kind = "sctp"\nmode = "listen"\naddress = "plain+sctp://127.0.0.1:5558"\n', ""),
    "backend": ('kind = "sctp"\nmode = "listen"\naddress = "backend+sctp://127.0.0.1:5558"\n', "CONFIRM"),
    "federation": ('kind = "federation"\nbroker = "broker"\nqueues = ["q"]\n', "basic.ack"),
    "replay": ('kind = "journal-replay"\npath = "journal"\n', ""),
    "resumed": ('kind = "journal-replay"\npath = "journal"\nconsumer = "me"\n', "'me' moves on"),
}


@for_each("name", SOURCES)
def test_a_source_that_acknowledges_is_as_safe_as_its_route(name: str) -> None:
    table, acknowledges = SOURCES[name]
    broker = f'{DURABLE}cluster_name = "here"\n'
    proof = proved(f"[engines.near]\n{table}", broker, route("near", "broker", "confirm = true"))["near"]
    assert bool(proof.acknowledges) == bool(acknowledges)
    assert acknowledges in proof.acknowledges
    assert proof.level == ("disk" if acknowledges else "nothing")


HUB = '[engines.hub]\nkind = "hub"\n'


@pytest.mark.parametrize(
    "routes, level, why",
    [
        ((route("hub", "broker", "confirm = true"),), "disk", "hub -> broker: broker: its records"),
        ((route("hub", "broker"),), "memory", "hub -> broker: it has no confirm = true"),
        (
            (route("hub", "broker", "confirm = true"), route("hub", "far", "confirm = true", 'match = "a"')),
            "disk",
            "hub -> broker",
        ),
        (
            (route("hub", "two", "confirm = true"), route("two", "hub", "confirm = true")),
            "nothing",
            "in a circle",
        ),
        ((route("two", "hub", "confirm = true"),), "nothing", "no route leads from it"),
    ],
)
def test_a_hub_is_as_safe_as_what_is_behind_it(routes: tuple[str, ...], level: str, why: str) -> None:
    two = HUB.replace("engines.hub", "engines.two")
    plan = (APP, HUB, two, DURABLE, FAR, route("app", "hub", "confirm = true"), *routes)
    proof = proved(*plan)["app"]
    (hop,) = proof.hops
    assert (hop.level, why in hop.why) == (level, True)


def test_levels_are_in_order() -> None:
    assert [rank(level) for level in LEVELS] == [0, 1, 2, 3, 4, 4]


def test_the_command_is_for_ci(kernel: Command, tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(DURABLE + LINK + route("link", "broker", "confirm = true") + APP + route("app", "broker"))
    status, shown, errors = kernel("prove", file)
    assert (status, errors) == (0, "")
    assert "link: disk (acknowledges with CONFIRM of the backend protocol; weakest: link -> broker)" in shown
    assert "  memory  app -> broker: it has no confirm = true" in shown
    assert kernel("prove", file, "--at-least", "memory")[0] == 0
    assert kernel("prove", file, "--at-least", "disk")[0] == 1
    assert kernel("prove", file, "--at-least", "disk", "--source", "link", "--source", "broker")[0] == 0
    lines = kernel("prove", file, "--json")[1].splitlines()
    assert [json.loads(line)["source"] for line in lines] == ["broker", "link", "app"]
    status, _, errors = kernel("prove", file, "--source", "lnk")
    assert status == 2
    assert "--source 'lnk' is no source" in errors
