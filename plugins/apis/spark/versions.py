"""Which pyspark the format ``kernel`` needs: checked before anything else is imported from it."""

from __future__ import annotations

import re

from kernel.contracts.extras import Extra
from plugins.apis.spark.errors import NoSpark

EARLIEST = (4, 2)
"""The first version whose sources say how much of a stream is read at once (``ReadLimit``)."""


def need_pyspark(who: str = "the format kernel") -> None:
    """Raise ``NoSpark``, with the command that mends it, if pyspark is missing or too old."""
    needed = Extra("spark", f"{who} needs pyspark", ("pyspark",))
    if not needed.is_installed():
        raise NoSpark(needed.complaint())
    from pyspark.version import __version__ as version

    if tuple(map(int, re.findall(r"\d+", version)[:2])) < EARLIEST:
        raise NoSpark(
            f"{who} needs pyspark {'.'.join(map(str, EARLIEST))} or newer, and this Python has {version}: "
            "pip install 'messaging-kernel[spark]'"
        )
