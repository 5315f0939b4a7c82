"""The options of each job: ``kernel pipeline run JOB --set NAME=VALUE``.

Every kernel loads this module, so it must not import Spark.
"""

from __future__ import annotations

from typing import Literal

import msgspec

_MICROSECOND = 1e-6
"""The unit of times in a journal, in seconds: a shorter duration would be 0."""


def _at_least(least: float, **options: float) -> None:
    for name, value in options.items():
        if value < least:
            raise ValueError(f"{name} is {value}; it must be {least} or more")


class TrafficOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of ``traffic``; the first four are SQL expressions over the feed's columns, and a number."""

    sent: str = "sent"
    """A SQL expression for the time when a message was sent; the default is the time in the envelope."""
    number: str = ""
    """A SQL expression for a number that the publisher counts up with each message.  With it, gaps,
    duplicates and reordering are found."""
    publisher: str = "engine"
    """A SQL expression for the publisher: each publisher has its own numbers."""
    step: int = 1
    """By how much a publisher increases its number for each message."""
    by: str = "key"
    """A SQL expression for the rows of the table, besides routes: the key, or a part of it such as
    ``split_part(key, '.', 1)``."""
    keys: int = 1000
    """The largest number of rows of the table, the busiest first."""

    def __post_init__(self) -> None:
        _at_least(1, step=self.step)


class SessionOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of ``sessions``."""

    who: str = "key"
    """A SQL expression over the feed's columns for the sender: each value has its own sessions."""
    pause: float = 30.0
    """Seconds without a message after which the next one begins another session."""
    shown: int = 500
    """The largest number of sessions in the table, the longest first."""

    def __post_init__(self) -> None:
        _at_least(_MICROSECOND, pause=self.pause)


class DeadLetterOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of ``dead-letters``."""

    poison: int = 3
    """A message that died this many times is a poison message."""
    shown: int = 500
    """The largest number of poison messages in the table, those with the most deaths first."""


class TopOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of ``top``."""

    by: str = "key"
    """A SQL expression over the feed's columns whose values are ranked, such as ``split_part(key, '.', 2)``
    or ``body:country``."""
    count: int = 20
    """The number of values in the report."""
    weight: str = "1"
    """A SQL expression that is summed for each value: 1 counts messages, ``octet_length(body)`` counts
    bytes."""

    def __post_init__(self) -> None:
        _at_least(1, count=self.count)


class AnomalyOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of ``anomalies``."""

    sent: str = "sent"
    """A SQL expression over the feed's columns for the time when a message was sent, for latencies."""
    limit: float = 5.0
    """How many standard deviations from the median make an anomaly."""
    width: float = 0.0
    """Seconds of a bucket; 0: a round number with which a chart has up to 120 points."""

    def __post_init__(self) -> None:
        # 0 has a meaning; everything else between it and a microsecond would divide by zero later.
        _at_least(_MICROSECOND if self.width else 0, width=self.width)


class WindowOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of ``windows``."""

    by: str = "key"
    """A SQL expression over the feed's columns: each of its values is counted separately."""
    width: float = 10.0
    """Seconds of a window."""
    slide: float = 0.0
    """Seconds from the start of one window to the start of the next; 0: ``width``, so that windows do not
    overlap."""
    late: float = 10.0
    """Seconds that a message may be late: a window is kept open this long after its end."""
    exchange: str = ""
    """The exchange of the messages that are sent."""
    prefix: str = "window"
    """The first word of the routing key of the messages that are sent; the value of ``by`` follows after a
    dot."""

    def __post_init__(self) -> None:
        _at_least(_MICROSECOND, width=self.width)
        _at_least(0, slide=self.slide, late=self.late)


class QualityOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of ``quality``."""

    schema: str
    """The fields of a body, as in SQL: ``number bigint not null, name string``.  Other fields are ignored."""
    format: Literal["json", "avro", "protobuf"] = "json"
    """The format of the bodies."""
    schema_file: str = ""
    """For Avro a file with the schema (JSON); for Protobuf a file with a set of descriptors, as ``protoc
    --include_imports --descriptor_set_out`` writes it."""
    message: str = ""
    """For Protobuf: the full name of the message."""
    checks: dict[str, str] = {}
    """SQL conditions over the fields that have to be true, by name."""
    samples: int = 50
    """The largest number of bad messages in the report."""
