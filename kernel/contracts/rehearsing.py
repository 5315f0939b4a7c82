"""Rehearsals: how an engine takes part in one (``EngineKind.rehearse``).

A rehearsal plays recorded messages through a topology in memory, to see who would get what.  An engine whose
kind says nothing is replaced by a stand-in, which sends what the engine has sent and counts what routes
bring.  An engine that decides itself who gets a message runs in a form without sockets and files
(docs/decisions/0040-rehearsals.md).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias
from typing import Protocol as Interface

import msgspec

from kernel.contracts.message import Batch, Envelope

if TYPE_CHECKING:
    from kernel.topology.plan import EnginePlan
    from kernel.topology.system import Kernel

Got: TypeAlias = tuple[str, Envelope, int]
"""The name of a receiver, and how many messages it got under which envelope."""


Subject: TypeAlias = tuple[str, str]
"""Exchange and key."""

Recorded: TypeAlias = tuple[str, Batch]
"""The name of the port that has sent the messages, and the messages."""


class Played(msgspec.Struct, kw_only=True):
    """What a rehearsal has shown."""

    fed: Counter[str] = msgspec.field(default_factory=Counter)
    """By engine: the messages that it has sent."""
    unknown: Counter[str] = msgspec.field(default_factory=Counter)
    """The same for senders that the plan does not have; these messages were not played."""
    got: defaultdict[str, Counter[Subject]] = msgspec.field(default_factory=lambda: defaultdict(Counter))
    """By receiver: the messages that it got."""
    nobody: Counter[Subject] = msgspec.field(default_factory=Counter)
    """Messages of exchanges and keys of which no receiver got any."""


class Inside(Interface):
    """The clients of a rehearsed engine.  Used by one thread, which is none of the engine's."""

    def send(self, batches: Iterable[Batch]) -> None:
        """Give the engine messages that its clients have sent; return when it has confirmed them.

        Raises ``KernelError`` if it does not.
        """
        ...

    def got(self, *, last: bool) -> Iterable[Got]:
        """Return what the receivers inside the engine have got since the last call.

        ``last``: wait until what was sent has arrived, since there will be no further call.
        """
        ...

    def close(self) -> None:
        """Leave the engine."""
        ...


class Rehearsal(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine takes part."""

    plan: EnginePlan
    """The engine as it runs: of the same name, without anything that reaches beyond the process."""
    enter: Callable[[Kernel, str], Inside] | None = None
    """``enter(kernel, name)``, when the engine runs.  None: it has neither clients nor receivers of its own,
    and messages that it has sent are brought to it by a route."""
