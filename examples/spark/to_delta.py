"""A journal as a stream into a Delta table, each message exactly once (``pip install deltalake``; no JARs).

python examples/spark/to_delta.py JOURNAL TABLE CHECKPOINT
"""

import json
import sys
from pathlib import Path
from typing import Any

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from plugins.apis.spark import session

journal, table, checkpoint = sys.argv[1:]
spark = session("to delta", master="local[2]")


def append(rows: Any, batch: int) -> None:
    """Append a micro-batch in one commit of the table, which also has the micro-batch's number."""
    query_id = json.loads(Path(checkpoint, "metadata").read_text())["id"]
    written = DeltaTable(table).transaction_version(query_id) if DeltaTable.is_deltatable(table) else None
    # Spark repeats a micro-batch if it was killed before it noted that this function had returned.
    if written is None or written < batch:
        number = Transaction(app_id=query_id, version=batch)
        write_deltalake(
            table,
            rows.toArrow(),
            mode="append",
            commit_properties=CommitProperties(app_transactions=[number]),
        )


query = (
    spark.readStream.format("kernel")
    .option("maxOffsetsPerTrigger", 1_000_000)  # a micro-batch goes through the driver's memory
    .load(journal)
    .select("offset", "exchange", "key", "headers", "body")
    .writeStream.foreachBatch(append)
    .option("checkpointLocation", checkpoint)
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()

spark.stop()
