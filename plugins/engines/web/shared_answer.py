"""Shared answer: one answer for all requests that come while it is made."""

from __future__ import annotations

from collections.abc import Callable

from plugins.engines.web.answer import Answer, Respond


class SharedAnswer:
    """Makes an answer that takes several turns, once at a time.

    So many clients that ask at the same moment cost no more than one.  ``make`` begins it, and calls the
    function that it is given with the answer.
    """

    def __init__(self, make: Callable[[Respond], None]) -> None:
        self._make = make
        self._waiting: list[Respond] = []

    def ask(self, respond: Respond) -> None:
        """Have ``respond`` called with the answer that is being made, or else with a new one."""
        self._waiting.append(respond)
        if len(self._waiting) == 1:
            self._make(self._done)

    def _done(self, answer: Answer) -> None:
        # First: who asks from now on, also from within ``respond``, gets an answer with newer figures.
        waiting, self._waiting = self._waiting, []
        for respond in waiting:
            respond(answer)
