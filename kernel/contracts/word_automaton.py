"""Word automaton: finds the values of many keys in a word trie, with one dictionary look-up for each word.

A look-up in a :class:`~kernel.contracts.word_trie.WordTrie` follows all nodes that the words so far lead to.
This class makes one *state* of such a set of nodes, when a key leads there for the first time, and remembers
to which state each word leads (the subset construction for automata, done lazily).  For keys that never come
again: what they have in common with others is then found again, although the keys are not.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Generic, TypeVar

from kernel.contracts.word_trie import Node, WordTrie, enter

V = TypeVar("V")

_FEWEST_TOGETHER = 8
"""Keys of which it pays to see whether they are alike."""
_MOST_STATES = 1000
_MOST_WORDS = 50_000
_MOST_FRONTS = 4096
"""Patterns may lead to a number of states that is exponential in theirs: what is remembered is
bounded, and cleared."""


class _State(Generic[V]):
    """Where the words so far lead."""

    __slots__ = ("known", "literals", "other", "reached", "staying", "values")

    def __init__(self, reached: tuple[Node[V], ...], staying: tuple[Node[V], ...]) -> None:
        self.reached = reached
        self.staying = staying
        """Nodes of ``ANY_WORDS``, which any further word does not leave."""
        nodes = (*reached, *staying)
        own: list[Container[str]] = [node.words for node in nodes if node.words]
        self.literals: Container[str] = own[0] if len(own) == 1 else _AnyOf(own) if own else ()
        """The words that lead elsewhere than all others do."""
        self.known: dict[str, _State[V]] = {}
        """Where those lead that have been met."""
        self.other: _State[V] | None = None
        """Where all other words lead."""
        self.values = tuple([value for node in nodes for value in node.values()])


class _AnyOf:
    """What is in any of these.  Not a copy: states may be many, and share the words of large nodes."""

    __slots__ = ("_containers",)

    def __init__(self, containers: Sequence[Container[str]]) -> None:
        self._containers = containers

    def __contains__(self, word: object) -> bool:
        return any(word in each for each in self._containers)


class WordAutomaton(Generic[V]):
    """Answers for one state of a trie: make another one when the trie has changed."""

    __slots__ = ("_any_last", "_fronts", "_root", "_start", "_states", "_words")

    def __init__(self, trie: WordTrie[V]) -> None:
        self._root = trie.root
        self._states: dict[tuple[frozenset[Node[V]], frozenset[Node[V]]], _State[V]] = {}
        self._words = 0
        self._fronts: dict[str, _State[V]] = {}
        self._any_last: dict[str, tuple[V, ...]] = {}
        """The answer for all keys with these words in front of the last, where no pattern names the last."""
        self._start = self._begin()

    def find_all(self, keys: Sequence[str], separator: str) -> list[tuple[V, ...]]:
        """Return for each key, whose words are separated so, the values of the patterns that match it.

        In no particular order, a value once for each of its patterns.  Equal answers are mostly the same
        object.  The empty key has no word.
        """
        together = self._find_together(keys, separator) if len(keys) >= _FEWEST_TOGETHER else None
        if together is not None:
            return [together] * len(keys)
        # What does not come again is mostly the last word (an order number), so where the words in front of
        # it lead is remembered.
        # The dictionary may be emptied while this runs (``_forget``), but it is never replaced. A state that
        # was forgotten stays right: the trie does not change as long as this object is used.
        start, fronts, any_last = self._start, self._fronts, self._any_last
        found: list[tuple[V, ...]] = []
        append = found.append
        for key in keys:
            words, separated, last = key.rpartition(separator)
            values = any_last.get(words)
            if values is not None:
                append(values)
                continue
            if separated:
                between = fronts.get(words)
                if between is None:
                    between = self._walk(words, separator)
            else:
                between = start
                if not key:
                    append(start.values)
                    continue
            state = between.known.get(last)
            if state is None:
                state = between.other
                if state is None or last in between.literals:
                    state = self._step(between, last)
                # A key of one word and one with an empty first word both have nothing in front of the last.
                if words and not between.literals:
                    any_last[words] = state.values
            append(state.values)
        return found

    def _find_together(self, keys: Sequence[str], separator: str) -> tuple[V, ...] | None:
        """Return the answer for all keys, if they differ in their last word alone and no pattern names it.

        None: look at each.  In C this takes 41 ns a key, where to look at each takes 104.
        """
        front, separated, last = keys[0].rpartition(separator)
        begin = front + separated
        if not separated or not keys[-1].startswith(begin):
            return None
        # All are between the least and the greatest, and so begin with what these two have in common.
        if not (min(keys).startswith(begin) and max(keys).startswith(begin)):
            return None
        # Each has as many separators as this, or more.
        if "\0".join(keys).count(separator) != begin.count(separator) * len(keys):
            return None
        between = self._fronts.get(front) or self._walk(front, separator)
        if between.literals:
            return None
        return (between.other or self._step(between, last)).values

    def _walk(self, front: str, separator: str) -> _State[V]:
        """Return where the words in front of the last one lead."""
        state = self._start
        for word in front.split(separator):
            following = state.known.get(word)
            if following is None:
                following = state.other
                if following is None or word in state.literals:
                    following = self._step(state, word)
            state = following
        if len(self._fronts) >= _MOST_FRONTS:
            self._fronts.clear()
            self._any_last.clear()
        self._fronts[front] = state
        return state

    def _begin(self) -> _State[V]:
        staying: dict[Node[V], None] = {}
        enter(staying, self._root.any_words)
        return self._state_of([self._root], staying)

    def _step(self, state: _State[V], word: str) -> _State[V]:
        """Return where a word leads, and remember it."""
        reached: list[Node[V]] = []
        staying = dict.fromkeys(state.staying)
        for node in (*state.reached, *state.staying):
            for following in (node.words.get(word) if node.words else None, node.one_word):
                if following is not None:
                    reached.append(following)
                    enter(staying, following.any_words)
        following_state = self._state_of(reached, staying)
        # Only words of patterns are remembered by themselves. All others, of which a flow may bring any
        # number, share ``other``.
        if word in state.literals:
            if self._words >= _MOST_WORDS:
                self._forget()
            self._words += 1
            state.known[word] = following_state
        else:
            state.other = following_state
        return following_state

    def _state_of(self, reached: list[Node[V]], staying: dict[Node[V], None]) -> _State[V]:
        # The same nodes make the same state, however a key has come there: keys whose further words are alike
        # share what is found for them.
        what = (frozenset(reached), frozenset(staying))
        state = self._states.get(what)
        if state is None:
            if len(self._states) >= _MOST_STATES:
                self._forget()
            state = self._states[what] = _State(tuple(reached), tuple(staying))
        return state

    def _forget(self) -> None:
        # The states that are in use go on, and what they lead to is found again.
        for state in self._states.values():
            state.known.clear()
            state.other = None
        self._states.clear()
        self._fronts.clear()
        self._any_last.clear()
        self._words = 0
