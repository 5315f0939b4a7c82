"""An association of the system's over a socket that is written down: what is read, what is handed over, and what is known of it."""

from __future__ import annotations

from typing import Any

from plugins.engines.sctp.options import HostedSctp, SctpEngineOptions
from plugins.engines.sctp.system import layout
from plugins.engines.sctp.system.association import READ_SIZE, SystemAssociation
from plugins.engines.sctp.system.layout import Option
from plugins.engines.sctp.system.sender import MAX_ACK_WAIT, MESSAGES_PER_TURN
from plugins.protocols.sctp.events import Event, Message, What
from plugins.protocols.sctp.schedule import Terms
from plugins.protocols.sctp.states import State
from tests.notes import for_each
from tests.plugins.engines.sctp.system.scripted import DRY, PEER, UP, Scripted, data, news

READS = 100


def association(*incoming: Any, tracks: bool = False, **options: Any) -> tuple[SystemAssociation, Scripted]:
    """One that is up, and has read what there is."""
    sock = Scripted(UP, *incoming)
    settings = SctpEngineOptions(address="backend+sctp://10.0.0.1:5000", transport="system", **options)
    made = SystemAssociation(sock, [PEER[0]], 5000, settings, tracks=tracks)  # type: ignore[arg-type]
    made.read(READS, memoryview(bytearray(READ_SIZE)))
    return made, sock


def read(made: SystemAssociation, sock: Scripted, *incoming: Any) -> None:
    sock.incoming += incoming
    made.read(READS, memoryview(bytearray(READ_SIZE)))


def whats(made: SystemAssociation) -> list[What]:
    return [event.what for event in made.events]


def test_it_is_up_with_what_was_agreed() -> None:
    made, _ = association(streams=16)
    assert made.state is State.ESTABLISHED
    assert whats(made) == [What.UP]
    assert (made.sender.streams, made.sender.peer_window) == (10, 60_000)
    assert [path.address for path in made.paths.all] == list(PEER)


def gone(*incoming: Any) -> SystemAssociation:
    """One that ended before the news that it is up were read."""
    sock = Scripted(UP, *incoming)
    sock.gone = True
    settings = SctpEngineOptions(address="plain+sctp://10.0.0.1:5000", transport="system")
    made = SystemAssociation(sock, [PEER[0]], 5000, settings, tracks=False)  # type: ignore[arg-type]
    made.read(READS, memoryview(bytearray(READ_SIZE)))
    return made


def test_one_that_is_over_before_the_news_that_it_is_up_were_read_is_over() -> None:
    made = gone(news("01800000 18000000 0100 000c 0000 0000 00000000 000c0004"))
    assert whats(made) == [What.UP, What.LOST]
    assert made.state is State.CLOSED


def test_what_a_peer_had_sent_that_was_gone_then_is_received() -> None:
    made = gone(data(b"one", 1), data(b"two", 1), (b"", [], 0))
    assert made.receive(0.0) == [Message(1, b"one"), Message(1, b"two")]
    assert whats(made) == [What.UP, What.CLOSED]
    assert [path.address for path in made.paths.all] == [PEER[0]]


# ---------------------------------------------------------------------- in


def test_messages_are_put_together_from_their_parts() -> None:
    made, _ = association(
        data(b"one", 1, 7),
        data(b"a", 2, 8, whole=False),
        data(b"b", 2, 8, whole=False),
        data(b"c", 2, 8),
        data(b"two", 1, 7),
    )
    assert made.receive(0.0) == [Message(1, b"one", 7), Message(2, b"abc", 8), Message(1, b"two", 7)]
    assert made.receive(0.0) == []


def test_a_part_is_forgotten_when_the_rest_will_not_come() -> None:
    aborted = news("06800000 18000000 00000000 00000000 02000000 00000000")
    made, _ = association(data(b"lost", 2, whole=False), aborted, data(b"next", 2))
    assert made.receive(0.0) == [Message(2, b"next")]


def test_a_message_without_an_end_is_not_kept() -> None:
    made, _ = association(*[data(bytes(60), whole=False)] * 5, max_message=200)
    assert made.state is State.CLOSED
    assert made.events[-1] == Event(what=What.LOST, detail="a message of more than 200 bytes")


def test_a_notification_in_parts_is_one() -> None:
    made, _ = association(news("05800000 0c00", whole=False), news("0000 00000000"))
    assert whats(made) == [What.UP, What.SHUTTING_DOWN]


def test_no_more_is_read_than_asked_for() -> None:
    made, sock = association()
    sock.incoming += [data(b"x")] * 5
    made.read(3, memoryview(bytearray(READ_SIZE)))
    assert len(sock.incoming) == 2


ENDS: dict[str, tuple[Any, What, str]] = {
    "closed": (news("01800000 14000000 0300 0000 0000 0000 00000000"), What.CLOSED, ""),
    "nothing more": ((b"", [], 0), What.CLOSED, ""),
    "aborted, and why": (
        news("01800000 1c000000 0100 000c 0000 0000 00000000 000c0007 62796500"),
        What.LOST,
        "aborted by the peer: bye",
    ),
    "aborted, and not why": (
        news("01800000 18000000 0100 000c 0000 0000 00000000 000c0004"),
        What.LOST,
        "aborted by the peer: cause 12",
    ),
    "given up": (news("01800000 14000000 0100 0000 0000 0000 00000000"), What.LOST, "connection lost"),
    "reset": (ConnectionResetError(104, "Connection reset by peer"), What.LOST, "Connection reset by peer"),
}


@for_each("name", ENDS)
def test_how_it_ends(name: str) -> None:
    end, what, detail = ENDS[name]
    made, _ = association(end)
    assert made.state is State.CLOSED
    assert made.events[-1] == Event(what=what, detail=detail)


def address_change(address: bytes, state: int) -> Any:
    place = layout.socket_address(address, 5000) + bytes(112)
    return news(f"02800000 94000000 {place.hex()} {state:02x}000000 00000000 00000000")


def test_paths_that_go_and_come_are_told_once() -> None:
    changes = [address_change(PEER[1], state) for state in (0, 5, 1, 1, 6, 0, 0)]
    made, _ = association(*changes)
    assert made.events[1:] == [
        Event(what=What.PATH_DOWN, address=PEER[1]),
        Event(what=What.PATH_UP, address=PEER[1]),
    ]


def test_what_the_peer_reports_is_told() -> None:
    made, _ = association(news("04800000 10000000 0001 0000 00000000"))
    assert made.events[-1] == Event(what=What.PEER_ERROR, detail="[1]")


def test_a_peer_that_begins_anew_gets_nothing_of_before() -> None:
    made, sock = association(data(b"half", whole=False), data(b"old", 1))
    sock.room = 0
    made.send(0, b"to the one before")
    made.hand_over(0.0)
    read(made, sock, news("01800000 14000000 0200 0000 0500 0500 00000000"), data(b"new"))
    sock.room = 10
    assert made.hand_over(0.0) == 0
    assert made.receive(0.0) == [Message(0, b"new")]
    assert whats(made) == [What.UP, What.RESTARTED]
    assert made.sender.streams == 5


# ---------------------------------------------------------------------- out


def test_nothing_goes_before_it_is_up() -> None:
    sock = Scripted()
    settings = SctpEngineOptions(address="backend+sctp://10.0.0.1:5000", transport="system")
    made = SystemAssociation(sock, [PEER[0]], 5000, settings, tracks=False)  # type: ignore[arg-type]
    made.send(0, b"early")
    assert made.hand_over(0.0) == 0
    read(made, sock, UP)
    assert made.hand_over(0.0) == 1


def test_how_a_message_is_to_go_is_said() -> None:
    made, sock = association()
    made.send(3, b"ordinary", 7)
    made.send(4, b"loose", 8, Terms(unordered=True, expires=1.5))
    assert made.hand_over(1.0) == 2
    assert sock.sent[0] == (b"ordinary", [layout.sending(3, 7)])
    flags = layout.UNORDERED | layout.SACK_IMMEDIATELY
    assert sock.sent[1] == (b"loose", [layout.sending(4, 8, flags, 1), layout.expiring(500)])


def test_what_has_expired_is_not_handed_over() -> None:
    made, sock = association()
    expired = made.send(0, b"late", terms=Terms(expires=1.0))
    made.send(0, b"next")
    assert made.hand_over(1.0) == 1
    assert expired.abandoned
    assert [body for body, _ in sock.sent] == [b"next"]


def test_messages_of_which_nobody_asks_are_sent_when_the_system_has_them() -> None:
    made, sock = association()
    sock.room = 1
    messages = [made.send(0, b"x") for _ in range(2)]
    made.hand_over(0.0)
    assert [message.is_acknowledged() for message in messages] == [True, False]
    assert made.sender.blocked
    sock.room = 1
    made.hand_over(0.0)
    assert messages[1].is_acknowledged()
    assert not made.sender.blocked


def test_streams_take_turns_for_what_room_there_is() -> None:
    made, sock = association()
    for stream in (0, 0, 0, 1, 1):
        made.send(stream, b"%d" % stream)
    made.hand_over(0.0)
    assert [body for body, _ in sock.sent] == [b"0", b"1", b"0", b"1", b"0"]


def test_a_turn_is_bounded() -> None:
    made, _ = association()
    for _ in range(MESSAGES_PER_TURN + 5):
        made.send(0, b"x")
    assert made.hand_over(0.0) == MESSAGES_PER_TURN
    assert made.hand_over(0.0) == 5


def test_what_is_asked_for_is_acknowledged_when_the_system_is_dry() -> None:
    made, sock = association(tracks=True)
    message = made.send(0, b"x")
    made.hand_over(0.0)
    sock.queued = 500  # that news is of what was before this message
    read(made, sock, DRY)
    assert not message.is_acknowledged()
    sock.queued = 0
    read(made, sock, DRY)
    assert message.is_acknowledged()


def test_the_system_is_left_to_run_dry_when_it_has_not_been_for_long() -> None:
    made, sock = association(tracks=True)
    sock.queued = 1
    made.send(0, b"first")
    made.hand_over(0.0)
    second = made.send(1, b"second")
    assert made.hand_over(MAX_ACK_WAIT) == 1
    third = made.send(2, b"third")
    assert made.hand_over(MAX_ACK_WAIT * 1.5) == 0
    sock.queued = 0
    read(made, sock, DRY)
    assert second.is_acknowledged()
    assert made.hand_over(MAX_ACK_WAIT * 1.5) == 1
    assert not third.is_acknowledged()


def test_what_the_system_has_given_up_is_known() -> None:
    made, sock = association()
    message = made.send(0, b"x", terms=Terms(expires=9.0))
    made.hand_over(0.0)
    failed = news("0d800000 20000000 00000000 0000 0000 00000000 01000000 00000000 00000000")
    read(made, sock, failed, failed)
    assert message.abandoned
    assert not message.is_acknowledged()


def test_a_socket_that_takes_nothing_any_more_is_the_end() -> None:
    made, sock = association()
    sock.room = -1
    made.send(0, b"x")
    assert made.hand_over(0.0) == 0
    assert made.state is State.CLOSED
    assert made.events[-1].detail == "Broken pipe"


def test_good_bye_is_said_when_the_system_has_everything() -> None:
    made, sock = association()
    sock.room = 0
    made.send(0, b"last")
    made.close(0.0)
    made.hand_over(0.0)
    assert not sock.shut
    assert not made.finishes
    sock.room = 1
    made.hand_over(0.0)
    assert sock.shut
    assert made.state is State.SHUTDOWN_SENT
    made.abort("there is no time to wait for the answer")
    assert made.finishes


def test_ranks_are_told_where_the_schedule_asks_for_them() -> None:
    made, sock = association(streams=3, sctp=HostedSctp(schedule="priority"))
    assert [value for option, value in sock.options if option == Option.STREAM_SCHEDULER_VALUE] == [
        layout.STREAM_VALUE.pack(0, stream, 255) for stream in range(3)
    ]
    made.rank_stream(2, priority=-9)
    assert sock.options[-1] == (Option.STREAM_SCHEDULER_VALUE, layout.STREAM_VALUE.pack(0, 2, 246))
    made.send(0, b"0")
    made.send(2, b"2")
    made.hand_over(0.0)
    assert [body for body, _ in sock.sent] == [b"2", b"0"]
    sock.gone = True
    made.rank_stream(1, priority=-9)  # nobody is told: the news that it is over are on their way
    other, sock = association()
    other.rank_stream(2, priority=-9)
    assert sock.options == []
