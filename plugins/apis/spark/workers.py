"""Spark's Python workers: processes that run one task after the other.

After each task Spark has the worker collect garbage, all of it: 25 ms and more to look at some 80,000 objects of Spark's, Arrow's
and pandas' modules, of which none is garbage.  In a micro-batch that happens four times: to plan its write, to read, to write and to commit;
when a DataFrame is read, three times: to describe it, to plan and to read.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from typing import Any

_DAEMON = "pyspark.daemon"
_settled: set[str] = set()


def settle(work: str) -> None:
    """Have later collections leave alone what this worker has loaded by the end of its first ``work``.

    Only once for each sort of work: what is frozen is never given back.
    """
    if work not in _settled and in_worker():
        _settled.add(work)
        gc.freeze()


def settled_after(work: str, batches: Iterator[Any]) -> Iterator[Any]:
    """Yield batches, and settle behind the last one."""
    yield from batches
    settle(work)


def in_worker() -> bool:
    """Whether this process was started by Spark to run tasks, and for nothing else."""
    return getattr(getattr(sys.modules.get("__main__"), "__spec__", None), "name", "") == _DAEMON
