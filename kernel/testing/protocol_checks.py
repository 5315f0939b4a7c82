"""Checks that every stream protocol has to pass.

A protocol's test hands over how to make a pair of ends, and what they can carry::

    @pytest.mark.parametrize("check", PROTOCOL_CHECKS, ids=lambda check: check.__name__)
    def test_my_protocol_keeps_the_contract(check):
        check(ProtocolSubject(make=lambda: (MyProtocol("client"), MyProtocol("server"))))

Each check is a function, makes new ends, and says in an ``AssertionError`` which rule was broken.  Times are
plain numbers and random numbers have a seed, so a failure can be repeated.

The checks stand in the place of a host, which knows nothing of the protocol and relies on four things:

* The result does not depend on where the bytes are cut.  A transport cuts them anywhere.
* A peer's bytes, whatever they are, raise ``RemoteProtocolError`` or nothing.  A host ends a connection for
  that error.  Any other exception ends its whole engine.
* Each call moves on: bytes are returned once, and a deadline that was handled is followed by a later one.
* Two conversations share nothing, since a listener has many.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from kernel.contracts.errors import ProtocolError, RemoteProtocolError
from kernel.contracts.message import PLAIN, Batch, Envelope, batch_of
from kernel.contracts.protocol import ConnectionFacts, StreamProtocol, Told, UpgradesToTls
from kernel.hosting.protocol_mistakes import BATCHES, BUFFERS, mistake_of, wrong_answer

Pair = tuple[StreamProtocol, StreamProtocol]
_MOST_ROUNDS = 1000
"""Rounds of bytes or deadlines.  Ends that need more than this never end."""


def sample_batches() -> tuple[Batch, ...]:
    """Batches of all sizes of bodies, with and without keys."""
    keyed, other = Envelope(key="a.key"), Envelope(key="another.key")
    return (
        # Around 255: many protocols write shorter sizes in one byte and others in several.
        batch_of([b"", b"1", b"x" * 254, b"y" * 255, b"z" * 256]),
        # Encoders and decoders may have a quick path for many bodies of one size.
        batch_of([b"of one size"] * 500),
        # One envelope, another one, and the first one again, in case envelopes are written once only.
        batch_of([b"keyed", b"\x00\xff" * 40], keyed),
        batch_of([b"other"], other),
        batch_of([b"keyed again"], keyed),
        batch_of([b"large" * 20_000, b"after"], PLAIN),
    )


class ProtocolSubject(msgspec.Struct, kw_only=True):
    """What is checked."""

    make: Callable[[], Pair]
    """Makes a client and a server that have exchanged nothing yet."""
    batches: Sequence[Batch] = msgspec.field(default_factory=sample_batches)
    """What a client can send to a server."""
    keys: bool = True
    """Whether keys arrive, too."""
    seed: int = 20_04

    def connected(self) -> Pair:
        """Return a pair that has exchanged nothing yet; ``Told`` ends were told of their connection."""
        ends = self.make()
        for end in ends:
            mistake = mistake_of(end)
            assert not mistake, mistake
            if isinstance(end, Told):
                end.on_connection(_facts(encrypted=False, seed=self.seed))
        return ends

    def opened(self, now: float = 0.0) -> Pair:
        """Return a pair that is ready to send."""
        client, server = self.connected()
        # As a host begins: it tells both ends the time, and they may greet.
        for end in (client, server):
            end.handle_timeout(now)
        carry(client, server, now)
        assert client.ready_to_send(), "the client is not ready to send after the handshake"
        return client, server

    def sent(self) -> tuple[bytes, list[Any]]:
        """Return the bytes of a client that sends everything, and what they mean."""
        client, _ = self.opened()
        client.send_batches(self.batches, 0.0)
        return written(client), self.plain(self.batches)

    def plain(self, batches: Sequence[Batch]) -> list[Any]:
        """Return bodies (and keys) without the borders of batches, which chunking may move."""
        return [
            (bytes(body), batch.envelope.key if self.keys else "")
            for batch in batches
            for body in batch.bodies
        ]


def written(end: StreamProtocol) -> bytes:
    """Return what an end wants to have written now."""
    data = end.data_to_send()
    try:
        return b"".join(data)
    except TypeError:
        raise AssertionError(str(wrong_answer(end, "data_to_send", data, BUFFERS))) from None


def received(end: StreamProtocol, data: bytes, now: float) -> list[Batch]:
    """Return the batches that an end makes of bytes."""
    batches = end.receive_data(data, now)
    if not isinstance(batches, Sequence) or not all(isinstance(batch, Batch) for batch in batches):
        raise AssertionError(str(wrong_answer(end, "receive_data", batches, BATCHES)))
    return batches


def carry(client: StreamProtocol, server: StreamProtocol, now: float) -> list[Batch]:
    """Carry bytes both ways until there are no more; return what the server received."""
    got: list[Batch] = []
    for _ in range(_MOST_ROUNDS):
        there, back = written(client), written(server)
        if not there and not back:
            if not _start_tls(client, server, now):
                return got
            continue
        if there:
            got += received(server, there, now)
        if back:
            received(client, back, now)
    raise AssertionError("the two ends go on sending bytes to each other without end")


def _start_tls(client: StreamProtocol, server: StreamProtocol, now: float) -> bool:
    """Do what a host does for ends that want TLS now; return whether they did.  Both have to want it."""
    # Only when both ends have nothing more to send: all plain bytes come before TLS.
    ends = [end for end in (client, server) if isinstance(end, UpgradesToTls) and end.wants_tls()]
    if len(ends) < 2:
        assert not ends, "one end wants TLS and the other does not"
        return False
    for end in ends:
        end.tls_started(_facts(encrypted=True, seed=0), now)
        assert not end.wants_tls(), "it wants TLS again after tls_started"
    return True


def _facts(*, encrypted: bool, seed: int) -> ConnectionFacts:
    return ConnectionFacts(
        peer="peer", local="local", encrypted=encrypted, certificate=None, subject="", seed=seed, shared={}
    )


def _receive(subject: ProtocolSubject, pieces: Sequence[bytes]) -> list[Any]:
    # The bytes are those of another client.  That is no difference: seed and time are fixed, so that each
    # pair of ends has the same handshake.
    _, server = subject.opened()
    return subject.plain([batch for piece in pieces for batch in received(server, piece, 0.0)])


# ---------------------------------------------------------------------- the checks


def whole(subject: ProtocolSubject) -> None:
    """What is sent arrives, in order."""
    data, expected = subject.sent()
    assert _receive(subject, [data]) == expected


def byte_by_byte(subject: ProtocolSubject) -> None:
    """What is sent one byte at a time arrives, too."""
    # Without the large bodies of ``sample_batches``: one call for each byte takes its time.
    few = msgspec.structs.replace(subject, batches=[batch.slice(0, 5) for batch in subject.batches[:5]])
    data, expected = few.sent()
    assert _receive(few, [data[at : at + 1] for at in range(len(data))]) == expected


def random_chunks(subject: ProtocolSubject) -> None:
    """What is sent in pieces of any size arrives, too."""
    chance = random.Random(subject.seed)
    data, expected = subject.sent()
    for attempt in range(25):
        # The first attempts have few pieces, the later ones many.
        borders = sorted({0, len(data), *(chance.randrange(len(data) + 1) for _ in range(attempt))})
        pieces = [data[a:b] for a, b in pairwise(borders)]
        assert _receive(subject, pieces) == expected, f"cut at {borders}"


def sizes_are_counted(subject: ProtocolSubject) -> None:
    """A batch's size is that of its bodies, and its width that of each body, or 0.

    Water marks and encoders depend on both.
    """
    _, server = subject.opened()
    for batch in received(server, subject.sent()[0], 0.0):
        sizes = [sum(map(len, body)) if batch.multipart else len(body) for body in batch.bodies]
        assert batch.size == sum(sizes)
        assert not batch.width or (not batch.multipart and set(sizes) == {batch.width})


def what_is_fetched_is_forgotten(subject: ProtocolSubject) -> None:
    """``data_to_send`` returns each byte only once."""
    client, _ = subject.opened()
    client.send_batches(subject.batches, 0.0)
    assert written(client)
    assert not written(client)


def handshake_byte_by_byte(subject: ProtocolSubject) -> None:
    """A handshake of which each byte comes alone succeeds."""
    client, server = subject.connected()
    for end in (client, server):
        end.handle_timeout(0.0)
    for _ in range(_MOST_ROUNDS):
        moved = False
        for end, other in ((client, server), (server, client)):
            for byte in written(end):
                moved = True
                received(other, bytes([byte]), 0.0)
        if not moved and not _start_tls(client, server, 0.0):
            break
    assert client.ready_to_send(), "the handshake does not end if bytes come one by one"


def hostile_bytes(subject: ProtocolSubject) -> None:
    """Random bytes raise ``RemoteProtocolError`` or nothing, before and after the handshake."""
    chance = random.Random(subject.seed)
    for attempt in range(300):
        data = chance.randbytes(chance.randrange(1, 300))
        _feed(subject, data, opened=attempt % 2 == 0, chunk=chance.randrange(1, 60))


def mutated_bytes(subject: ProtocolSubject) -> None:
    """Bytes that are nearly right raise ``RemoteProtocolError`` or nothing."""
    chance = random.Random(subject.seed)
    few = msgspec.structs.replace(subject, batches=[batch.slice(0, 5) for batch in subject.batches[:5]])
    data, _ = few.sent()
    for _ in range(300):
        mutated = bytearray(data)
        # Few bytes, or the first wrong one would end each attempt, and the code behind it would not be tried.
        for _ in range(chance.randrange(1, 6)):
            mutated[chance.randrange(len(mutated))] = chance.randrange(256)
        _feed(few, bytes(mutated), opened=True, chunk=chance.randrange(1, len(mutated)))


def _feed(subject: ProtocolSubject, data: bytes, *, opened: bool, chunk: int) -> None:
    server = subject.opened()[1] if opened else subject.connected()[1]
    server.handle_timeout(0.0)
    try:
        for at in range(0, len(data), chunk):
            received(server, data[at : at + chunk], 0.0)
        server.receive_eof(0.0)
    except RemoteProtocolError:
        # The host writes the last words after an error, so this must not fail either.
        server.data_to_send()
    except Exception as error:
        raise AssertionError(f"{data!r} raised {error!r}, not RemoteProtocolError") from error


def truncated_messages(subject: ProtocolSubject) -> None:
    """A stream that ends anywhere raises ``RemoteProtocolError`` or gives a beginning of what was sent."""
    # A few messages: each byte of them is a place to cut, and each cut has a handshake of its own.
    few = msgspec.structs.replace(subject, batches=[batch.slice(0, 3) for batch in subject.batches[:3]])
    data, expected = few.sent()
    for at in range(len(data)):
        _, server = few.opened()
        got = few.plain(received(server, data[:at], 0.0))
        assert got == expected[: len(got)], f"cut at {at}"
        try:
            server.receive_eof(0.0)
        except RemoteProtocolError:
            pass


def deadlines_move_on(subject: ProtocolSubject) -> None:
    """``handle_timeout`` moves the deadline or ends the conversation: a host never loops without a pause."""
    # Before the handshake there are deadlines, too: those that limit it.
    for end in (*subject.opened(), *subject.connected()):
        now = 0.0
        end.handle_timeout(now)
        for _ in range(_MOST_ROUNDS):
            deadline = end.next_deadline()
            if deadline is None or deadline == float("inf") or end.closed():
                break
            now = max(now, deadline)
            try:
                end.handle_timeout(now)
            except RemoteProtocolError:
                # The protocol gives up its peer, which has indeed said nothing.
                break
            end.data_to_send()
            following = end.next_deadline()
            # An equal deadline would make the host call again at once, for ever.
            assert following is None or following > now, (
                f"handle_timeout({now}) was called, and the next deadline is not later"
            )
        else:
            raise AssertionError("the conversation with a silent peer never ends")


def idle_ends_stay_open(subject: ProtocolSubject) -> None:
    """Two ends without messages keep the conversation open."""
    client, server = subject.opened()
    now = 0.0
    # The clock goes from deadline to deadline, and each end gets what the other has to say: heartbeats, for
    # example.
    for _ in range(50):
        deadlines = [due for end in (client, server) if (due := end.next_deadline()) is not None]
        if not deadlines or min(deadlines) == float("inf"):
            break
        now = max(now, *[min(deadlines)])
        for end in (client, server):
            due = end.next_deadline()
            if due is not None and due <= now:
                end.handle_timeout(now)
        carry(client, server, now)
    assert not client.closed()
    assert not server.closed()
    assert client.ready_to_send()


def closing_is_understood(subject: ProtocolSubject) -> None:
    """What was sent before ``close`` arrives, and both ends are closed then."""
    client, server = subject.opened()
    client.send_batches(subject.batches[:1], 0.0)
    client.close("done", 0.0)
    received = carry(client, server, 0.0)
    assert subject.plain(received) == subject.plain(subject.batches[:1])
    # ``close`` is enough for the side that closes; the other one may have to see the end of the stream.
    assert client.closed(), "the end that was closed does not say so (``closed``)"
    server.receive_eof(0.0)
    assert server.closed(), "the other end does not say that it is closed"


def sending_when_closed_is_refused(subject: ProtocolSubject) -> None:
    """``send_batches`` raises a ``ProtocolError`` after the end, and does not lose messages in silence."""
    client, server = subject.opened()
    client.close("done", 0.0)
    carry(client, server, 0.0)
    assert not client.ready_to_send()
    try:
        client.send_batches(subject.batches[:1], 0.0)
    except ProtocolError:
        return
    raise AssertionError("send_batches took messages after the end and did not raise")


def ends_are_independent(subject: ProtocolSubject) -> None:
    """Two conversations share nothing."""
    data, expected = subject.sent()
    _, one = subject.opened()
    _, other = subject.opened()
    got: list[Any] = []
    also: list[Any] = []
    # In turns, so that each is in the middle of a message while the other goes on.
    for at in range(0, len(data), 1000):
        got += subject.plain(received(one, data[at : at + 1000], 0.0))
        also += subject.plain(received(other, data[at : at + 1000], 0.0))
    assert got == also == expected


PROTOCOL_CHECKS: tuple[Callable[[ProtocolSubject], None], ...] = (
    whole,
    byte_by_byte,
    random_chunks,
    sizes_are_counted,
    what_is_fetched_is_forgotten,
    handshake_byte_by_byte,
    hostile_bytes,
    mutated_bytes,
    truncated_messages,
    deadlines_move_on,
    idle_ends_stay_open,
    closing_is_understood,
    sending_when_closed_is_refused,
    ends_are_independent,
)
"""All of them."""
