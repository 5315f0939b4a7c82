"""What one packet of a peer may cost: no more than in proportion to its length, whatever else is stored."""

from __future__ import annotations

from plugins.protocols.sctp.chunks import Init
from plugins.protocols.sctp.handshake import read_init
from plugins.protocols.sctp.options import SctpOptions
from plugins.protocols.sctp.parameters import Kind, Parameter


class Compared(bytes):
    """An address that counts how often it is compared."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Compared.comparisons += 1
        return bytes.__eq__(self, other)

    __hash__ = bytes.__hash__


def test_an_init_with_very_many_addresses_is_read_up_to_the_sixteenth() -> None:
    listed = [Compared(number.to_bytes(4, "big")) for number in range(2000)]
    init = Init(
        is_ack=False,
        tag=1,
        window=65536,
        outbound=1,
        inbound=1,
        tsn=1,
        parameters=tuple(Parameter(Kind.IPV4, each) for each in [*listed[:3], *listed]),
    )
    offer, _ = read_init(init, b"\x7f\0\0\1", SctpOptions())
    assert offer.addresses == [b"\x7f\0\0\1", *listed[:15]]
    assert Compared.comparisons < 1000
