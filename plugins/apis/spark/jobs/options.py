"""What can be set of each job: ``kernel pipeline run JOB --set NAME=VALUE``.

Loaded with every kernel, and so without Spark.
"""

from __future__ import annotations

from typing import Literal

import msgspec

_MICROSECOND = 1e-6
"""What times are counted in."""


def _at_least(least: float, **options: float) -> None:
    for name, value in options.items():
        if value < least:
            raise ValueError(f"{name} is {value}; it must be {least} or more")


class TrafficOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What only the publishers know, as SQL expressions over the feed's columns."""

    sent: str = "sent"
    """When a message was sent, a timestamp; as it stands the one in the envelope."""
    number: str = ""
    """A message's number, counted up by its publisher; with it, gaps, duplicates and disorder are found."""
    publisher: str = "engine"
    """Who counts: each has numbers of its own."""
    step: int = 1
    """By how much a publisher counts up."""
    by: str = "key"
    """What the table tells apart, besides routes: the key, or a part of it as in ``split_part(key, '.',
    1)``."""
    keys: int = 1000
    """How many routes and keys the table has, the busiest first."""

    def __post_init__(self) -> None:
        _at_least(1, step=self.step)


class SessionOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a session is."""

    who: str = "key"
    """Whose sessions: a SQL expression over the feed's columns."""
    pause: float = 30.0
    """Seconds without a message after which the next one begins another session."""
    shown: int = 500
    """How many sessions the table has, the longest first."""

    def __post_init__(self) -> None:
        _at_least(_MICROSECOND, pause=self.pause)


class DeadLetterOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much is shown."""

    poison: int = 3
    """A message that died so many times is poison."""
    shown: int = 500
    """How many poison messages the table has, the most often dead first."""


class TopOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of what, and how many."""

    by: str = "key"
    """A SQL expression over the feed's columns, such as ``split_part(key, '.', 2)`` or ``body:country``."""
    count: int = 20
    """How many."""
    weight: str = "1"
    """What is added up: 1 counts messages, ``octet_length(body)`` counts bytes."""

    def __post_init__(self) -> None:
        _at_least(1, count=self.count)


class AnomalyOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is odd."""

    sent: str = "sent"
    """When a message was sent: a SQL expression over the feed's columns, for latencies."""
    limit: float = 5.0
    """How many standard deviations from the median are odd."""
    width: float = 0.0
    """Seconds of a bucket; 0: as many as make a good chart."""

    def __post_init__(self) -> None:
        _at_least(_MICROSECOND if self.width else 0, width=self.width)


class WindowOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which windows, of what."""

    by: str = "key"
    """What is counted apart: a SQL expression over the feed's columns."""
    width: float = 10.0
    """Seconds of a window."""
    slide: float = 0.0
    """Seconds from the start of one window to the next; 0: as many as a window has, so that they do not
    overlap."""
    late: float = 10.0
    """Seconds that a message may be late by: so long a window is kept open."""
    exchange: str = ""
    """The exchange that is sent to."""
    prefix: str = "window"
    """First word of the routing key of what is sent; ``by``'s value follows after a dot."""

    def __post_init__(self) -> None:
        _at_least(_MICROSECOND, width=self.width)
        _at_least(0, slide=self.slide, late=self.late)


class QualityOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What bodies have to be."""

    schema: str
    """The fields, as in SQL: ``number bigint not null, name string``.  Others are let pass."""
    format: Literal["json", "avro", "protobuf"] = "json"
    """What bodies are."""
    schema_file: str = ""
    """Of Avro the schema (JSON); of Protobuf a set of descriptors, as ``protoc --include_imports
    --descriptor_set_out`` writes it."""
    message: str = ""
    """Of Protobuf: the full name of the message."""
    checks: dict[str, str] = {}
    """By name, what has to be true: SQL conditions over the fields."""
    samples: int = 50
    """How many bad messages are shown."""
