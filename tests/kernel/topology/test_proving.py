"""What an acknowledgement means is said for each source, and the weakest hop counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernel.contracts.assurance import LEVELS, rank
from kernel.plugins import PluginRegistry
from kernel.topology.check import plan_of_text
from kernel.topology.proving import Proof, prove
from tests.kernel.cli.test_commands import Command, kernel

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


def test_a_kind_that_states_nothing_assures_nothing() -> None:
    zmq = '[engines.zmq]\nkind = "zmq"\ntype = "PULL"\nbind = ["tcp://127.0.0.1:0"]\n'
    proof = proved(zmq, DURABLE, route("zmq", "broker", "confirm = true"))["zmq"]
    assert (proof.level, proof.hops[0].why) == (
        "nothing",
        "kind 'zmq' does not state what its acknowledgement means",
    )


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
