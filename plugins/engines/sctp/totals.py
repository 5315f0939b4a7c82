"""Counters of an engine: of past conversations and of current ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from plugins.engines.sctp.conversation import Conversation

_NAMES = ("messages_in", "messages_out", "messages_refused", "units_given_up")


class Totals:
    """Sums under the standard names."""

    def __init__(self) -> None:
        self._past: Counter[str] = Counter()

    def add(self, conversation: Conversation) -> None:
        """Add a conversation that has ended."""
        self._past += _figures(conversation)

    def with_those(self, conversations: Sequence[Conversation]) -> dict[str, int]:
        """Return the sums, including current conversations."""
        sums = sum((_figures(each) for each in conversations if not each.ended), self._past)
        return {name: sums[name] for name in _NAMES}


def _figures(conversation: Conversation) -> Counter[str]:
    figures: Counter[str] = Counter()
    for stream in conversation.streams:
        figures["messages_in"] += stream.input.messages
        output = stream.output
        if output is not None:
            figures["messages_out"] += output.messages
            figures["messages_refused"] += output.refused
            figures["units_given_up"] += output.abandoned
    return figures
