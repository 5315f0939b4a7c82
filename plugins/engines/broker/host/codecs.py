"""Codecs: those of all front ends that are installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel.contracts.kinds import EngineSetup
from plugins.engines.broker.contract import FRONT_ENDS

if TYPE_CHECKING:
    from plugins.engines.broker.storage.envelopes import Codecs


def codecs_of(setup: EngineSetup) -> Codecs:
    """Return what a store has to read the messages of any front end that was ever used with it."""
    # Imported here: a broker without a data_dir imports nothing of the store.
    from plugins.engines.broker.storage.envelopes import Codecs

    kinds = setup.kinds(FRONT_ENDS).values()
    return Codecs([kind.codec() for kind in kinds if kind.codec is not None])
