"""Bodies in JSON, Avro or Protobuf, as JSON text that Spark's own functions go on with.

Avro and Protobuf are read in Python (``fastavro``, ``protobuf``), in the tasks: Spark's own readers of them
are jars.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

Format: TypeAlias = Literal["json", "avro", "protobuf"]
_KEPT = "offset bigint, ts timestamp, engine string, route string, key string, body binary"


def decoded(feed: DataFrame, format: Format, schema_file: str = "", message: str = "") -> DataFrame:  # noqa: A002 - what it is
    """Return offset, ts, engine, route, key, body and ``text``, the body as JSON; null if it cannot be read.

    ``schema_file`` is for Avro its schema (``.avsc``), for Protobuf a set of descriptors (``protoc --include_imports
    --descriptor_set_out``), of which ``message`` is the full name of one.  Avro bodies are single records without a header.
    """
    kept = feed.select("offset", "ts", "engine", "route", "key", "body")
    if format == "json":
        return kept.withColumn("text", F.col("body").cast("string"))
    schema = Path(schema_file).read_bytes()  # read here: tasks may run elsewhere

    def decode(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        read = _avro(schema) if format == "avro" else _protobuf(schema, message)
        for batch in batches:
            texts = pa.array([_tried(read, body) for body in batch.column("body").to_pylist()], pa.string())
            yield batch.append_column("text", texts)

    return kept.mapInArrow(decode, f"{_KEPT}, text string")


def _tried(read: Callable[[bytes], str], body: bytes) -> str | None:
    try:
        return read(body)
    except Exception:  # whatever a decoder makes of bytes that are none of its own: they cannot be read
        return None


def _avro(schema: bytes) -> Callable[[bytes], str]:
    import fastavro

    parsed = fastavro.parse_schema(json.loads(schema))

    def read(body: bytes) -> str:
        stream = BytesIO(body)
        record = fastavro.schemaless_reader(stream, parsed, None)
        if stream.read(1):
            raise ValueError("bytes are left over")
        return json.dumps(record, default=_plain)

    return read


def _protobuf(descriptors: bytes, message: str) -> Callable[[bytes], str]:
    from google.protobuf import descriptor_pb2, message_factory

    files = descriptor_pb2.FileDescriptorSet.FromString(descriptors)
    kind = message_factory.GetMessages(files.file)[message]
    return lambda body: json.dumps(_fields(kind.FromString(body)), default=_plain)


def _fields(message: Any) -> dict[str, Any]:
    """Return what is set in a message of Protobuf.  Its own JSON writes numbers of 64 bits as text."""
    return {field.name: _field(field, value) for field, value in message.ListFields()}


def _field(field: Any, value: Any) -> Any:
    nested = field.message_type
    if nested is None:
        return list(value) if field.is_repeated else value
    if nested.GetOptions().map_entry:
        inner = nested.fields_by_name["value"]
        return {str(key): _field(inner, item) for key, item in value.items()}
    return [_fields(item) for item in value] if field.is_repeated else _fields(value)


def _plain(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
