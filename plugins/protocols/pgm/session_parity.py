"""Parity at the receiver: incomplete groups, and the packets reconstructed from them (RFC 3208, 11.5).

Every data and parity packet of a group is kept until ``k`` of them have arrived, whichever they are; then the
missing ones are computed. A group is forgotten when the receive window has passed its last packet.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from plugins.protocols.pgm.extensions import ParityParameters
from plugins.protocols.pgm.packets import Data
from plugins.protocols.pgm.parity_rows import Item, RowShape
from plugins.protocols.pgm.reed_solomon import FIELD, recover
from plugins.protocols.pgm.sequence import MASK, distance


class _Group:
    """The received packets of one group."""

    __slots__ = ("items", "parity", "shape")

    def __init__(self) -> None:
        self.items: dict[int, Item] = {}
        self.parity: dict[int, bytes] = {}
        self.shape: RowShape | None = None


class SessionParity:
    """The groups of one session, from the number ``first`` on."""

    def __init__(self, parameters: ParityParameters, first: int) -> None:
        self.on_demand = parameters.on_demand
        self.mask = parameters.group - 1
        self._k = parameters.group
        self._first = first
        self._groups: dict[int, _Group] = {}
        self._done = first

    def note(self, number: int, item: Item) -> list[tuple[int, Item]]:
        """Add a data packet; return the packets that can be reconstructed now."""
        start = number & ~self.mask & MASK
        group = self._groups.get(start)
        if group is None:
            group = self._groups[start] = _Group()
        # All data packets are kept, not only those of groups with a loss: whether one is missing is known
        # only when its group is over.
        group.items[number & self.mask] = item
        return self._solve(start, group) if group.parity else []

    def take(self, parity: Data) -> list[tuple[int, Item]]:
        """Add a parity packet; return the packets that can be reconstructed now."""
        start = parity.number & ~self.mask & MASK
        # 11.2: the number of a parity packet is its quotient by k in OPT_PARITY_GRP, and the rest in the low
        # bits.
        index = (parity.number & self.mask) + parity.extensions.parity_group * self._k
        # An index that the code does not have is damage or an attack; a group before ``_done`` was delivered.
        if self._k + index >= FIELD or distance(self._done, start + self.mask & MASK) < 0:
            return []
        group = self._groups.setdefault(start, _Group())
        row = RowShape.row_of_parity(parity.data, parity.extensions)
        shape = RowShape.of_parity(parity.data, variable=parity.variable, extensions=parity.extensions)
        # Parity packets of one group are computed from the same rows, and so are equally long. One that
        # differs would make the solution of the whole group wrong.
        if shape.size < 0 or any(len(other) != len(row) for other in group.parity.values()):
            return []
        group.parity[index] = row
        group.shape = shape
        return self._solve(start, group)

    def forget_before(self, number: int) -> None:
        """Forget groups before ``number``: they were delivered or given up."""
        behind = self._done & ~self.mask & MASK
        passed = distance(behind, number) // self._k
        self._done = number
        # The shorter of the two is walked: with each packet, thousands of groups may wait behind a gap, and a
        # forged packet may pass half of the number space.
        if passed <= len(self._groups):
            gone = [behind + step * self._k & MASK for step in range(passed)]
        else:
            gone = [start for start in self._groups if distance(start + self._k & MASK, number) >= 0]
        for start in gone:
            self._groups.pop(start, None)

    def requests(
        self, numbers: Sequence[int], missing: Container[int], lead: int
    ) -> tuple[list[tuple[int, list[int]]], list[int]]:
        """Divide numbers into parity requests and numbers to request singly.

        Each parity request comes with the packets that it stands for: everything ``missing`` of its group.
        Parity helps with whole groups that were heard from their beginning.
        """
        groups: dict[int, None] = {}
        single: list[int] = []
        for number in numbers:
            start = number & ~self.mask & MASK
            # A group that began before this receiver joined would need all its earlier packets, more than the
            # missing ones. A group that is not complete at the source has no parity yet, and 11.5 allows
            # selective NAKs for it.
            whole = distance(self._first, start) >= 0 and distance(start + self.mask & MASK, lead) >= 0
            if self.on_demand and whole:
                groups[start] = None
            else:
                single.append(number)
        # The low bits of a parity NAK are the count of packets minus one (11.3.1).
        asked = [(start | self._wanted(start) - 1, self._of(start, missing)) for start in groups]
        return asked, single

    def covered(self, number: int, missing: Container[int]) -> list[int]:
        """Return which missing packets a parity request with that number stands for.

        These are all of the group; none if the request is for fewer parity packets than are needed here.
        """
        start = number & ~self.mask & MASK
        # A request for fewer packets than this receiver needs does not suppress its own (6.3, "Backing off
        # NAK transmission").
        return self._of(start, missing) if (number & self.mask) + 1 >= self._wanted(start) else []

    def _of(self, start: int, missing: Container[int]) -> list[int]:
        # The group is walked, and not what is missing: after a long pause that is far more.
        return [number for number in range(start, start + self._k) if number in missing]

    def _wanted(self, start: int) -> int:
        group = self._groups.get(start)
        have = len(group.items) + len(group.parity) if group is not None else 0
        # At least one: a group may have k packets and still be unsolved, if they did not fit together.
        return max(self._k - have, 1)

    def _solve(self, start: int, group: _Group) -> list[tuple[int, Item]]:
        shape = group.shape
        if shape is None or len(group.items) + len(group.parity) < self._k or len(group.items) >= self._k:
            return []
        rows = {position: shape.row(item) for position, item in group.items.items()}
        known = {position: row for position, row in rows.items() if row is not None}
        if len(known) < len(rows):
            # A row that does not fit the shape: the parity does not belong to these packets. The group waits
            # for its next parity packet, or for the trailing edge.
            return []
        solved: list[tuple[int, Item]] = []
        for position, row in recover(self._k, known, group.parity).items():
            item = shape.item(row)
            if item is not None:
                # Kept like one that has arrived, so that ``_solve`` does not compute the group a second time.
                group.items[position] = item
                solved.append((start + position & MASK, item))
        return solved
