"""Spark reads the journal while it is written, and sends counts by country and second back to the broker."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

from examples.demo.feed import say
from plugins.apis.spark import session
from plugins.apis.spark.jobs.options import WindowOptions
from plugins.apis.spark.jobs.windows import windows

stopping = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stopping.set())

counted = WindowOptions(
    by="if(exchange = 'feed', split_part(key, '.', 2), null)",  # airport.cz.lkpr: the country
    width=1.0,
    late=0.0,  # a journal's times never go back, so that nothing is late
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
    while not stopping.is_set():
        if query.awaitTermination(1):
            raise SystemExit(f"the query has ended: {query.exception()}")
        if query.lastProgress is not None:
            say(ready=True, batch=query.lastProgress["batchId"])
    query.stop()
finally:
    spark.stop()
say(done=True)
