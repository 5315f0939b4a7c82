"""Topic: bindings are patterns of words with ``*`` (one word) and ``#`` (any number of words, also none).

AMQP 0-9-1, section 3.1.3.3.  The cost of a look-up in the trie does not depend on the number of bindings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from kernel.contracts.spelling import DOTTED, Word
from kernel.contracts.word_trie import WordTrie
from plugins.engines.broker.binding import Binding, Destination
from plugins.engines.broker.contract import LooksAt

if TYPE_CHECKING:
    from kernel.contracts.word_automaton import WordAutomaton


def words_of(key: str) -> list[str]:
    """Split a key; the empty key has no word at all (RabbitMQ), ``a..b`` has three."""
    return key.split(".") if key else []


def _pattern_of(key: str) -> tuple[Word, ...]:
    return DOTTED.pattern(key) if key else ()


class TopicMatcher:
    """Patterns in a trie."""

    looks_at: ClassVar[LooksAt] = "key"

    def __init__(self) -> None:
        self._trie: WordTrie[Destination] = WordTrie()
        self._automaton: WordAutomaton[Destination] | None = None
        """For ``match_all``; None: a binding has changed since."""

    def check(self, key: str, arguments: Mapping[str, Any]) -> None:
        """Accept any key."""

    def add(self, binding: Binding) -> None:
        """Add a binding."""
        # The trie counts equal entries: several bindings may have the same pattern and destination, and
        # differ in their arguments.
        self._automaton = None
        self._trie.add(_pattern_of(binding.key), binding.destination)

    def remove(self, binding: Binding) -> None:
        """Remove a binding."""
        self._automaton = None
        self._trie.remove(_pattern_of(binding.key), binding.destination)

    def match(self, key: str, headers: Mapping[str, Any]) -> Iterable[Destination]:
        """Return the destinations of the patterns that the key matches."""
        return self._trie.find(words_of(key))

    def match_all(self, keys: Sequence[str]) -> Sequence[tuple[Destination, ...]]:
        """Return what ``match`` returns, for each key."""
        automaton = self._automaton
        if automaton is None:
            # Imported here: many brokers never see a batch in which each message has another key.
            from kernel.contracts.word_automaton import WordAutomaton

            automaton = self._automaton = WordAutomaton(self._trie)
        return automaton.find_all(keys, ".")
