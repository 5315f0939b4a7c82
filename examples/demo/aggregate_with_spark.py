"""Spark reads the journal while it is written, and sends counts by country and second back to the broker."""

from __future__ import annotations

import os
from typing import Any

from examples.demo.feed import say
from plugins.apis.spark import session
from plugins.apis.spark.jobs.options import WindowOptions
from plugins.apis.spark.jobs.windows import windows
from plugins.apis.spark.running import run_until_stopped

counted = WindowOptions(
    by="if(exchange = 'feed', split_part(key, '.', 2), null)",  # airport.cz.lkpr: the country
    width=1.0,
    late=0.0,  # times in a journal never decrease, so that no message is late
    exchange="results",
    prefix="country",
)
spark = session("demo", master="local[2]", configuration={"spark.driver.memory": "1g"})
try:
    feed = spark.readStream.format("kernel").option("consumer", "demo").load(os.environ["JOURNAL_DIR"])
    query: Any = (
        windows(feed, counted)
        .writeStream.format("kernel")
        .option("address", f"backend+tcp://127.0.0.1:{os.environ['RESULTS_PORT']}")
        .option("checkpointLocation", os.environ["CHECKPOINT_DIR"])
        .trigger(processingTime="1 second")
        .start()
    )
    run_until_stopped(
        query, lambda: query.lastProgress and say(ready=True, batch=query.lastProgress["batchId"])
    )
finally:
    spark.stop()
say(done=True)
