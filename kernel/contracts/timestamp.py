"""Timestamp: seconds since 1970 that no ``datetime`` can hold."""

from __future__ import annotations


class Timestamp(int):
    """A time in seconds since 1970-01-01 UTC, from the year 10000 on; some AMQP peers send milliseconds.

    It is a type of its own so that it stays a time, and does not become a number, on its way through brokers,
    stores and other protocols.
    """
