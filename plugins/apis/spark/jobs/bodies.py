"""Converts bodies in JSON, Avro or Protobuf to JSON text, which Spark's own functions can read.

Avro and Protobuf are read in Python (``fastavro``, ``protobuf``), in the tasks: Spark's own readers for them
are jars that would have to be installed.
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


# The option of the job has the name ``format``, and so has this argument, though it hides a built-in
# function.
def decoded(feed: DataFrame, format: Format, schema_file: str = "", message: str = "") -> DataFrame:  # noqa: A002
    """Return offset, ts, engine, route, key, body and ``text``, the body as JSON; null if it cannot be read.

    ``schema_file`` is the schema for Avro (``.avsc``).  For Protobuf it is a set of descriptors (``protoc
    --include_imports --descriptor_set_out``), and ``message`` is the full name of the message in it.  Avro
    bodies are single records without a header.
    """
    kept = feed.select("offset", "ts", "engine", "route", "key", "body")
    if format == "json":
        return kept.withColumn("text", F.col("body").cast("string"))
    # Read here, in the driver: a task may run on another node, which does not have the file.
    schema = Path(schema_file).read_bytes()

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
    # A decoder raises all sorts of exceptions for bytes that are not in its format.
    except Exception:
        return None


def _avro(schema: bytes) -> Callable[[bytes], str]:
    import fastavro

    parsed = fastavro.parse_schema(json.loads(schema))

    def read(body: bytes) -> str:
        stream = BytesIO(body)
        record = fastavro.schemaless_reader(stream, parsed, None)
        # Without a header any bytes may be a record by chance; bytes after it show that they were not.
        if stream.read(1):
            raise ValueError("there are bytes after the record")
        return json.dumps(record, default=_plain)

    return read


def _protobuf(descriptors: bytes, message: str) -> Callable[[bytes], str]:
    from google.protobuf import descriptor_pb2, message_factory

    files = descriptor_pb2.FileDescriptorSet.FromString(descriptors)
    kind = message_factory.GetMessages(files.file)[message]
    return lambda body: json.dumps(_fields(kind.FromString(body)), default=_plain)


def _fields(message: Any) -> dict[str, Any]:
    """Return the fields of a Protobuf message that are set.

    Protobuf's own conversion to JSON writes numbers of 64 bits as text, which no schema would expect.
    """
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
    # JSON has no bytes.  Latin-1 gives each byte a character, so that nothing is lost.
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
