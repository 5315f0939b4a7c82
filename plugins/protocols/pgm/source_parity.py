"""Parity at the source: sent after every group, and on request (RFC 3208, 11.4).

A transmission group is ``k`` consecutive packets, k being a power of two; the upper bits of a sequence number
are the group, the lower ones the position in it (11.2). Any k of a group's data and parity packets are enough
to reconstruct the group. So a receiver does not ask for particular packets but for a count of parity packets,
and one parity packet repairs a different loss at every receiver.

Parity packets reuse the numbers of their group: the lower bits are the index of the parity packet. From index
k on, OPT_PARITY_GRP has the quotient. No index is used twice within one group as long as there are others,
because a receiver that has a parity packet gains nothing from the same one again (11.4).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any

from plugins.protocols.pgm import packets
from plugins.protocols.pgm.extensions import MAX_NAK_LIST, Extensions, ParityParameters
from plugins.protocols.pgm.options import SourceOptions
from plugins.protocols.pgm.packets import DATA, Data
from plugins.protocols.pgm.parity_rows import Item, RowShape
from plugins.protocols.pgm.reed_solomon import FIELD, encode
from plugins.protocols.pgm.sequence import MASK

REMEMBERED = 1024
"""Groups whose last request and last parity packet are remembered."""


class Parity:
    """A parity packet without its header."""

    __slots__ = ("data", "extensions", "number", "variable")

    def __init__(self, number: int, data: bytes, extensions: Extensions, *, variable: bool) -> None:
        self.number = number
        self.data = data
        self.extensions = extensions
        self.variable = variable


class SourceParity:
    """Transmission groups of ``k`` packets each; a group begins at a multiple of ``k``."""

    def __init__(self, options: SourceOptions, get: Callable[[int], bytes | None]) -> None:
        self.parameters = ParityParameters(
            options.parity_group, options.parity_packets > 0, options.parity_on_demand
        )
        """The parameters that SPMs announce."""
        self.mask = options.parity_group - 1
        self.confirmations: deque[int] = deque()
        """Parity NAKs that are to be confirmed."""
        self._k = options.parity_group
        self._proactive = options.parity_packets
        self._guard = options.repeat_guard
        self._get = get
        self._asked: dict[int, tuple[float, int]] = {}
        self._used: dict[int, int] = {}
        self._pending: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def at_end(self, number: int) -> list[Parity]:
        """Return the parity packets that follow a group without request."""
        group = number & ~self.mask & MASK
        made = [self._make(group) for _ in range(self._proactive)]
        return [parity for parity in made if parity is not None]

    def ask(self, number: int, now: float) -> bool:
        """Process a parity NAK; return False if the group has left the window.

        The low bits of ``number`` plus one are the number of parity packets that are wanted.
        """
        group, count = number & ~self.mask & MASK, (number & self.mask) + 1
        # Parity needs all k packets. If one has left the window the others alone cannot be encoded, and the
        # receivers have to be told of the trailing edge. The same answer is given for a group that is not
        # complete yet: its packets are to be requested singly.
        if any(self._get((group + position) & MASK) is None for position in range(self._k)):
            return False
        # Every parity NAK is confirmed, also one that adds nothing to what is pending (11.4).
        self.confirmations.append(number)
        at, enough = self._asked.get(group, (-math.inf, 0))
        # Otherwise the NAK has crossed the answer to an earlier one that asked for as many packets or more.
        if now >= at + self._guard or count > enough:
            self._asked[group] = now, count
            # The largest request counts, not the sum: each packet helps all receivers of the group (11.4).
            self._pending[group] = max(self._pending.get(group, 0), count)
            _limit(self._asked)
        return True

    def confirmed(self) -> tuple[int, ...]:
        """Return requests to confirm in one NCF."""
        count = min(len(self.confirmations), MAX_NAK_LIST + 1)
        return tuple([self.confirmations.popleft() for _ in range(count)])

    def next(self) -> Parity | None:
        """Return the next requested parity packet, or None."""
        while self._pending:
            group, count = next(iter(self._pending.items()))
            if count > 1:
                self._pending[group] = count - 1
            else:
                del self._pending[group]
            parity = self._make(group)
            if parity is not None:
                return parity
        return None

    def _make(self, group: int) -> Parity | None:
        """Compute a parity packet with an index that was not used recently."""
        items = [self._item((group + position) & MASK) for position in range(self._k)]
        if any(item is None for item in items):
            return None
        known = [item for item in items if item is not None]
        shape = RowShape.of_items(known)
        rows = [row for item in known if (row := shape.row(item)) is not None]
        # Taken out and put in again, so that the dictionary is in order of use and ``_limit`` removes the
        # group that was unused for longest.
        index = self._used.pop(group, -1) + 1
        # The code has 255 blocks at most, of which k are the data. A group that has used up its indexes
        # begins again with the first.
        if self._k + index >= FIELD:
            index = 0
        self._used[group] = index
        _limit(self._used)
        data, extensions = shape.parity_of_row(encode(rows, index))
        # 11.2: parity packets from the k-th on need OPT_PARITY_GRP, since the position in the number has
        # log2(k) bits. The option must not be there with a value of 0.
        if index > self.mask:
            extensions = Extensions(
                fragment=extensions.fragment, encoded=extensions.encoded, parity_group=index // self._k
            )
        return Parity(group | index & self.mask, data, extensions, variable=shape.variable)

    def _item(self, number: int) -> Item | None:
        packet = self._get(number)
        if packet is None:
            return None
        if not packet[5]:
            # Byte 5 is the options byte. The stored packet is the one that was sent, so it is decoded again
            # only if it has options.
            return packet[DATA.size :], None
        decoded = packets.decode(packet)
        assert isinstance(decoded, Data)
        return decoded.data, decoded.extensions.fragment


def _limit(remembered: dict[int, Any]) -> None:
    """Remove the oldest entry."""
    if len(remembered) > REMEMBERED:
        del remembered[next(iter(remembered))]
