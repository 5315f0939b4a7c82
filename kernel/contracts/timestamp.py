"""Timestamp: seconds since 1970, for times that are too late for a ``datetime``."""

from __future__ import annotations


class Timestamp(int):
    """A time in seconds since 1970-01-01 UTC, from the year 10000 on.

    Such times come from AMQP peers that send milliseconds.  With a type of its own the value stays a time,
    and does not become a number, on its way through brokers, stores and other protocols.
    """
