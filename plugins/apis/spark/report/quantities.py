"""Numbers as people read them, and round numbers for axes."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Any

from plugins.apis.spark.report.findings import Unit

_NOTHING = "\u2013"
_DECIMAL = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BINARY = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_TIME = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def spell(value: Any, unit: Unit = "") -> str:
    """Return a value as text: ``12.3 M``, ``4.1 KiB/s``, ``250 ms``, ``12 %``; other values as they are."""
    if value is None:
        return _NOTHING
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, float) and math.isnan(value):
        return _NOTHING
    if unit == "" and isinstance(value, int):
        return f"{value:,}".replace(",", "\u202f")
    suffix = "/s" if unit.endswith("/s") else ""
    if unit == "share":
        return f"{_short(value * 100)} %"
    if unit == "seconds":
        return _scaled(value, _TIME, "µs", 1e-6)
    if unit.startswith("bytes"):
        return _scaled(value, _BINARY, "B", 1) + suffix
    if unit == "messages" and abs(value) < 1e6:
        return f"{value:,.0f}".replace(",", "\u202f")
    return _scaled(value, _DECIMAL, "", 1) + suffix


def _scaled(value: float, steps: tuple[tuple[float, str], ...], smallest: str, least: float) -> str:
    if value == 0:
        return "0" if not smallest or smallest == "µs" else f"0 {smallest}"
    # 0.9995: 999.6 is written as "1 k", not as "1000".
    for size, name in steps:
        if abs(value) >= size * 0.9995:
            return f"{_short(value / size)} {name}"
    return f"{_short(value / least)} {smallest}".strip()


def _short(value: float) -> str:
    """Return a number with three significant digits, without zeros at its end."""
    # The limits are where rounding adds a digit: 9.996 with two digits would be "10.00".
    digits = 0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def ticks(most: float, unit: Unit = "", wanted: int = 4) -> list[float]:
    """Return round numbers from 0 up to the first that is not below ``most``."""
    if most <= 0:
        return [0.0, 1.0]
    # Bytes are written in powers of 1024, so that round numbers are round in that unit.
    base = 1024.0 ** max(0, math.floor(math.log(most, 1024))) if unit.startswith("bytes") else 1.0
    # 0.999, and 1e-9 below: errors of floats must not lead to the next step, or to one more tick.
    rough = most / base / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999) * base
    return [step * index for index in range(math.ceil(most / step - 1e-9) + 1)]


_STEPS = (
    0.001,
    0.005,
    0.01,
    0.05,
    0.1,
    0.5,
    1,
    2,
    5,
    10,
    30,
    60,
    120,
    300,
    600,
    1800,
    3600,
    7200,
    21600,
    43200,
    86400,
)


def time_ticks(first: datetime, last: datetime, wanted: int = 8) -> list[datetime]:
    """Return round times between two others."""
    # The steps are counted from midnight: then a step of 6 hours is at 06:00 and 12:00.
    # Beyond the longest of ``_STEPS``, a day, a step is a number of whole days.
    span = max((last - first).total_seconds(), 1e-6)
    step = next((each for each in _STEPS if span / each <= wanted), math.ceil(span / wanted / 86400) * 86400)
    midnight = first.replace(hour=0, minute=0, second=0, microsecond=0)
    start = math.ceil((first - midnight).total_seconds() / step - 1e-9)
    return [
        midnight + timedelta(seconds=(start + index) * step)
        for index in range(int(span / step) + 2)
        if midnight + timedelta(seconds=(start + index) * step) <= last
    ]


def moment(when: datetime, span: timedelta) -> str:
    """Return a time as text, with the parts that differ between times within ``span``."""
    if span >= timedelta(days=2):
        return f"{when:%m-%d %H:%M}"
    if span >= timedelta(minutes=8):
        return f"{when:%H:%M}"
    if span >= timedelta(seconds=8):
        return f"{when:%H:%M:%S}"
    return f"{when:%S}.{when.microsecond // 1000:03d}"
