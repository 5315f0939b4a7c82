"""Timestamp: seconds since 1970, for times that are too late for a ``datetime``; and both as numbers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The last year of a ``datetime`` is 9999.
_YEAR_10000 = 253402300800


class Timestamp(int):
    """A time in seconds since 1970-01-01 UTC, from the year 10000 on.

    Such times come from AMQP peers that send milliseconds.  With a type of its own the value stays a time,
    and does not become a number, on its way through brokers, stores and other protocols.
    """


def time_of(seconds: int) -> datetime | Timestamp:
    """Return seconds since 1970 as a datetime, or as a ``Timestamp`` from the year 10000 on."""
    return _EPOCH + timedelta(seconds=seconds) if seconds < _YEAR_10000 else Timestamp(seconds)


def seconds_of(moment: datetime | int) -> int:
    """Return a time, or seconds, as seconds since 1970; a datetime without a time zone is UTC."""
    if not isinstance(moment, datetime):
        return moment
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    # Not ``timestamp``, which computes with floats. This rounds down, also before 1970.
    return (moment - _EPOCH) // timedelta(seconds=1)
