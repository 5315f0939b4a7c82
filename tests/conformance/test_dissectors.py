"""Every dissector that is installed keeps to ``kernel.contracts.dissector``, whatever it is shown."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel.contracts.dissector import Datagram, Line
from kernel.contracts.kinds import DissectorKind
from kernel.inspection.inspector import Shown
from kernel.inspection.printing import as_json, for_people, row_as_json
from kernel.plugins import PluginRegistry

pytestmark = pytest.mark.peer("scapy")

KINDS = {name: installed.kind for name, installed in PluginRegistry.load().dissectors.items()}
of_streams = pytest.mark.parametrize("name", [name for name in KINDS if KINDS[name].carries == "stream"])
of_datagrams = pytest.mark.parametrize("name", [name for name in KINDS if KINDS[name].carries == "datagram"])

_step = st.tuples(st.integers(0, 1), st.binary(max_size=60) | st.none() | st.integers(1, 2**31))


def shown(lines: list[Line]) -> None:
    """Lines can be shown to people and to programs."""
    for line in lines:
        each = Shown(time=0.0, protocol="it", session=line.session, source="a", destination="b", line=line)
        assert "\n" not in for_people(each)
        assert json.loads(as_json(each))["what"] == line.what


def figures(row: Any) -> None:
    assert json.loads(row_as_json("it", row))["summary"] == "it"


@of_streams
@given(st.lists(_step, max_size=20))
def test_streams(name: str, steps: list[tuple[int, bytes | int | None]]) -> None:
    dissector = KINDS[name].create()
    for time, (sender, said) in enumerate(steps):
        if isinstance(said, bytes):
            shown(list(dissector.receive(sender, said, float(time))) if said else [])
        else:
            shown(list(dissector.lose(sender, said, float(time))))
    figures(dissector.figures())


@of_datagrams
@given(st.lists(st.tuples(st.binary(max_size=80), st.integers(0, 50)), max_size=10))
def test_datagrams(name: str, packets: list[tuple[bytes, int]]) -> None:
    dissector = KINDS[name].create()
    for time, (data, cut) in enumerate(packets):
        datagram = Datagram(
            time=float(time), source="192.0.2.1", destination="239.192.1.1", data=data, cut=cut
        )
        shown(list(dissector.receive(datagram)))
    for row in dissector.sessions().values():
        figures(row)


@pytest.mark.parametrize("name", KINDS)
@given(first=st.binary(max_size=64))
def test_recognising(name: str, first: bytes) -> None:
    kind: DissectorKind = KINDS[name]
    assert kind.recognises(first) in (True, False)
    assert not kind.recognises(b"")
