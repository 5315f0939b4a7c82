"""From packets to lines and tables: who speaks what, which conversation is which, and what is given up."""

from __future__ import annotations

from typing import Any

import pytest

from kernel.contracts.dissector import CLIENT, Datagram, Line
from kernel.contracts.kinds import DissectorKind
from kernel.inspection import inspector as module
from kernel.inspection.inspector import Inspector, Shown
from kernel.inspection.recognition import Recognition, Wanted
from kernel.inspection.tcp import Segment

A, B = ("192.0.2.1", 40000), ("192.0.2.2", 7000)


class Echoes:
    """A dissector that says what it is told."""

    def receive(self, sender: int, data: bytes, time: float) -> list[Line]:
        if data == b"raise":
            raise ValueError("of its own")
        return [Line("client" if sender == CLIENT else "server", {"data": data.decode()})]

    def lose(self, sender: int, count: int | None, time: float) -> list[Line]:
        return [Line("lost", {"count": count})]

    def figures(self) -> dict[str, Any]:
        return {"worth": 1}


class Counts:
    """The same of datagrams."""

    def __init__(self) -> None:
        self.count = 0

    def receive(self, datagram: Datagram) -> list[Line]:
        if datagram.data == b"raise":
            raise ValueError("of its own")
        self.count += 1
        return [Line("datagram", {}, "all")]

    def sessions(self) -> dict[str, dict[str, Any]]:
        return {"all": {"count": self.count}}


KINDS = [
    DissectorKind(
        name="echo", summary="", ports=frozenset({7000}), recognises=lambda first: first == b"echo", create=Echoes
    ),
    DissectorKind(name="other", summary="", recognises=lambda first: first == b"other", create=Echoes),
    DissectorKind(
        name="counts", summary="", carries="datagram", ip_protocol=99, ports=frozenset({7000}),
        recognises=lambda first: first == b"count", create=Counts,
    ),
]  # fmt: skip


def inspector(**wanted: Any) -> Inspector:
    return Inspector(Recognition(KINDS, Wanted(**wanted)))


def segment(data: bytes, *, source: Any = A, destination: Any = B, number: int = 1, **more: Any) -> Segment:
    return Segment(
        time=0.0,
        source=source,
        destination=destination,
        number=number,
        data=data,
        **{"acknowledged": 0, **more},
    )


def opened(made: Inspector, source: Any = A, destination: Any = B, number: int = 0) -> None:
    assert (
        list(
            made.segment(
                segment(
                    b"", source=source, destination=destination, number=number, syn=True, acknowledged=None
                )
            )
        )
        == []
    )


def datagram(data: bytes, port: int = 1, **more: Any) -> Datagram:
    return Datagram(
        time=0.0,
        source="192.0.2.1",
        destination="192.0.2.2",
        source_port=port,
        destination_port=port,
        data=data,
        **more,
    )


def what(lines: Any) -> list[tuple[str, str, str]]:
    return [(each.protocol, each.session, each.line.what) for each in lines]


def test_a_protocol_is_seen_in_the_first_bytes_of_a_sender() -> None:
    made = inspector()
    server = ("192.0.2.2", 1234)
    opened(made, destination=server)
    (shown,) = made.segment(segment(b"other", destination=server))
    assert shown == Shown(
        time=0.0, protocol="other", session="other-1", source="192.0.2.1:40000", destination="192.0.2.2:1234",
        line=Line("client", {"data": "other"}),
    )  # fmt: skip
    assert list(made.finish()) == []
    assert made.tables() == {
        "other": [
            {
                "session": "other-1", "client": "192.0.2.1:40000", "server": "192.0.2.2:1234", "worth": 1, "rtt_ms": 0.0,
                "retransmitted_bytes": 0, "missing_bytes": 0, "end": "open",
            }
        ]
    }  # fmt: skip


def test_or_guessed_from_the_port_when_enough_was_said_in_vain() -> None:
    made = inspector()
    opened(made)
    assert list(made.segment(segment(b"something", number=1))) == []
    shown = list(made.segment(segment(b"else, and more of it", number=10)))
    assert [each.line.facts["data"] for each in shown] == ["something", "else, and more of it"]
    unknown = inspector()
    opened(unknown, destination=("192.0.2.2", 1234))
    for number in range(20):
        assert (
            list(unknown.segment(segment(b"x" * 30, destination=("192.0.2.2", 1234), number=1 + 30 * number)))
            == []
        )
    assert list(unknown.finish()) == []
    assert unknown.tables() == {}


def test_or_said_by_the_user() -> None:
    made = inspector(meant={1234: "other"})
    opened(made, destination=("192.0.2.2", 1234))
    assert what(made.segment(segment(b"x", destination=("192.0.2.2", 1234)))) == [
        ("other", "other-1", "client")
    ]


def test_what_is_said_too_briefly_is_shown_at_the_end() -> None:
    made = inspector()
    opened(made)
    assert list(made.segment(segment(b"hm"))) == []
    assert what(made.finish()) == [("echo", "echo-1", "client")]


@pytest.mark.parametrize(
    "wanted, shown",
    [
        ({"protocols": ["other"]}, 0),
        ({"protocols": ["echo"]}, 1),
        ({"ports": [7000]}, 1),
        ({"ports": [1]}, 0),
    ],
)
def test_only_what_is_wanted_is_shown(wanted: dict[str, Any], shown: int) -> None:
    made = inspector(**wanted)
    list(made.segment(segment(b"", syn=True, acknowledged=None, number=0)))
    assert len([*made.segment(segment(b"echo")), *made.finish()]) == shown


def test_who_has_connected_is_guessed_where_the_beginning_is_missing() -> None:
    made = inspector()
    lines = [*made.segment(segment(b"echo", source=B, destination=A)), *made.segment(segment(b"x"))]
    assert [each.line.what for each in lines] == ["lost", "server", "lost", "client"]


def test_the_same_ports_again_are_another_conversation() -> None:
    made = inspector()
    for number in (0, 90_000):
        opened(made, number=number)
        list(made.segment(segment(b"echo", number=number + 1)))
    list(made.finish())
    assert [row["session"] for row in made.tables()["echo"]] == ["echo-1", "echo-2"]


def test_connections_and_rows_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONVERSATIONS", 10)
    monkeypatch.setattr(module, "ROWS", 20)
    made = inspector()
    for port in range(30):
        client = ("192.0.2.1", 40_000 + port)
        opened(made, source=client)
        list(made.segment(segment(b"echo", source=client)))
    assert len(made._conversations) == 10
    list(made.finish())
    assert (len(made.tables()["echo"]), made.left_out) == (20, 10)


def test_a_dissector_that_raises_is_named_and_hides_no_other() -> None:
    made = inspector()
    opened(made)
    list(made.segment(segment(b"echo", number=1)))
    (shown,) = made.segment(segment(b"raise", number=5))
    assert shown.line == Line("dissector failed", {"error": "ValueError: of its own"})
    assert list(made.segment(segment(b"more", number=10))) == []
    assert [each.line.what for each in made.datagram(99, datagram(b"raise", port=0))] == ["dissector failed"]
    assert [each.line.what for each in made.datagram(99, datagram(b"fine", port=0))] == ["datagram"]


def test_a_dissector_whose_figures_fail_has_that_in_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    made = inspector()
    for client in (A, ("192.0.2.1", 40001)):
        opened(made, source=client)
        list(made.segment(segment(b"echo", source=client)))
    list(made.datagram(99, datagram(b"x", port=0)))

    def fail(self: Any) -> dict[str, Any]:
        raise ValueError("of its own")

    monkeypatch.setattr(Echoes, "figures", fail)
    monkeypatch.setattr(Counts, "sessions", fail)
    list(made.finish())
    rows = made.tables()
    assert [(row["session"], row["dissector failed"]) for row in rows["echo"]] == [
        ("echo-1", "ValueError: of its own"),
        ("echo-2", "ValueError: of its own"),
    ]
    assert rows["counts"] == [{"session": "counts", "dissector failed": "ValueError: of its own"}]


def test_datagrams_are_known_by_ips_number_by_what_they_say_and_by_their_port() -> None:
    made = inspector()
    assert what(made.datagram(99, datagram(b"x", port=0))) == [("counts", "all", "datagram")]
    assert what(made.datagram(98, datagram(b"x", port=0))) == []
    assert what(made.datagram(17, datagram(b"x", port=7000))) == [("counts", "all", "datagram")]
    assert what(made.datagram(17, datagram(b"x", port=5))) == []
    assert what(made.datagram(17, datagram(b"count", port=5))) == [("counts", "all", "datagram")]
    assert what(made.datagram(17, datagram(b"x", port=5))) == [("counts", "all", "datagram")]  # the same flow
    assert made.tables() == {"counts": [{"session": "all", "count": 4}]}


def test_a_flow_that_says_nothing_known_is_not_looked_at_for_ever() -> None:
    made = inspector()
    for _ in range(module.TRIES):
        assert list(made.datagram(17, datagram(b"x"))) == []
    assert list(made.datagram(17, datagram(b"count"))) == []


def test_flows_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FLOWS", 10)
    made = inspector()
    for port in range(1, 50):
        list(made.datagram(17, datagram(b"count", port=port)))
    assert len(made._flows) == 10
