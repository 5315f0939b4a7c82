"""What a receiver counts."""

from __future__ import annotations


class ReceiverStatistics:
    """Counters of a receiver, over all of its sessions."""

    def __init__(self) -> None:
        self.packets_in = self.bytes_in = 0
        self.malformed = 0
        """Packets that are none, or damaged."""
        self.foreign = 0
        """Packets for another port."""
        self.ignored = 0
        """Packets of sources that are not listened to."""
        self.duplicates = 0
        """Packets of data that had come before."""
        self.gaps = 0
        """Times that packets were found missing."""
        self.worked_out = 0
        """Missing packets that were worked out of parity."""
        self.recovered = 0
        """Missing packets that came after all."""
        self.lost = 0
        """Packets that were given up."""
        self.dropped_units = 0
        """Fragmented units that could not be put together."""
        self.naks_out = self.numbers_asked = self.spmrs_out = self.acks_out = 0
