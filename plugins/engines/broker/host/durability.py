"""Durability: opens the data directory of a broker, if its options name one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kernel.contracts.engine import EngineEvent, Host
from kernel.contracts.errors import KernelError
from plugins.engines.broker.host.options import BrokerOptions
from plugins.engines.broker.host.resources import machine_memory, octets

if TYPE_CHECKING:
    from kernel.hosting.appending import Disk
    from plugins.engines.broker.storage.envelopes import Codecs
    from plugins.engines.broker.storage.opening import OpenStore

USERS_FILE = "users.json"
"""In the data directory: the users that were imported, which the store's log does not have
(``users_file.py``)."""
USERS_KNOWN = "users.known"
"""Says that there is such a file (``kernel/hosting/registered.py``)."""


def open_store(
    options: BrokerOptions,
    engine: str,
    host: Host,
    codecs: Callable[[], Codecs] | None,
    now: float,
    time_of_day: float,
    on_done: Callable[[], None],
    disk: Disk | None = None,
) -> OpenStore | None:
    """Open the data directory.  Return None if there is none; then everything is in memory only.

    ``KernelError`` names the option if the directory cannot be used.  ``on_done`` is called in the engine's
    thread whenever more is safe.  ``disk``: the system calls to write with; None: those of the operating
    system.
    """
    if not options.data_dir:
        return None
    # A broker without a data_dir imports nothing of the store.
    from plugins.engines.broker.storage.envelopes import Codecs
    from plugins.engines.broker.storage.opening import OpenStore
    from plugins.engines.broker.storage.store_options import StoreOptions

    def report(what: str, detail: str) -> None:
        host.report(EngineEvent(engine=engine, what=what, peer=options.data_dir, detail=detail))

    try:
        return OpenStore(
            Path(options.data_dir),
            StoreOptions(
                fsync=options.fsync,
                queue_bytes=options.queue_bytes,
                all_queues_bytes=octets(options.all_queues_bytes, machine_memory()),
            ),
            Codecs() if codecs is None else codecs(),
            now=now,
            time_of_day=time_of_day,
            post=host.post,
            on_done=on_done,
            report=report,
            disk=disk,
        )
    except (FileExistsError, NotADirectoryError) as error:
        raise KernelError(
            f"data_dir = {options.data_dir!r}: {error.filename} is no folder; name another one"
        ) from error
    except OSError as error:
        # Not every error has a file.
        raise KernelError(f"data_dir = {options.data_dir!r}: {error}") from error
