"""Counters of a receiver."""

from __future__ import annotations


class ReceiverStatistics:
    """Counters of a receiver, over all of its sessions."""

    def __init__(self) -> None:
        self.packets_in = self.bytes_in = 0
        self.malformed = 0
        """Packets that are malformed or damaged."""
        self.foreign = 0
        """Packets for another port."""
        self.ignored = 0
        """Packets of sources that are not received."""
        self.duplicates = 0
        """Data packets that had arrived before."""
        self.gaps = 0
        """Times that packets were found missing."""
        self.worked_out = 0
        """Missing packets that were reconstructed from parity."""
        self.recovered = 0
        """Missing packets that arrived later."""
        self.lost = 0
        """Packets that were given up."""
        self.dropped_units = 0
        """Fragmented units that could not be completed."""
        self.naks_out = self.numbers_asked = self.spmrs_out = self.acks_out = 0
