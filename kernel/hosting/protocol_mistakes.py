"""What the author of a protocol is told who has missed its contract.

Nothing here is on the path of a message.  A protocol's class is looked at when the first object is made of
it, and what its methods return when it is of no use.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from kernel.contracts.errors import PluginError
from kernel.contracts.protocol import StreamProtocol

BATCHES = "a list of batches (`batch_of` makes one), empty if no message is complete"
BUFFERS = "a list of bytes, empty if there is nothing to write"
TRUTH = "True or False"

_METHODS = [
    name for name, value in vars(StreamProtocol).items() if inspect.isfunction(value) and name[0] != "_"
]


def mistake_of(protocol: Any) -> str:
    """Return why this object is no stream protocol; empty if it has what the contract asks for."""
    if protocol is None:
        return "`create` has returned None, and not a protocol"
    name = _name(protocol)
    for method in _METHODS:
        found = getattr(protocol, method, None)
        if not callable(found):
            return f"{name} has no method `{method}`, which `StreamProtocol` asks for"
        # They would be lost without a word: the call only makes an object, and runs nothing.
        if inspect.iscoroutinefunction(found):
            return f"{name}.{method} is `async def`; a protocol does not wait"
        if inspect.isgeneratorfunction(found):
            return f"{name}.{method} has a `yield`; it has to return what it has"
    if not hasattr(protocol, "subscriptions"):
        return f"{name} has no list `subscriptions`, which `StreamProtocol` asks for"
    return ""


def refuse_buffers(protocol: Any, data: Any) -> None:
    """Raise if ``data_to_send`` has not returned buffers; for whoever could not write them."""
    try:
        if isinstance(data, Sequence) and not isinstance(data, (bytes, bytearray, memoryview, str)):
            for each in data:
                memoryview(each)
            return
    except TypeError:
        pass
    raise wrong_answer(protocol, "data_to_send", data, BUFFERS) from None


def wrong_answer(protocol: Any, method: str, answer: Any, expected: str) -> PluginError:
    """Return the error for a method that has returned what it must not."""
    said = repr(answer)
    return PluginError(
        f"{_name(protocol)}.{method} has returned {said if len(said) <= 60 else f'{said[:57]}...'}; it has to "
        f"return {expected}"
    )


def _name(protocol: Any) -> str:
    return f"{type(protocol).__module__}.{type(protocol).__qualname__}"
