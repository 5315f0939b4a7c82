"""Spark reads the journal while it is written, and sends counts by country and second back to the broker.

When it is told to stop it writes a page about the whole journal, as ``kernel pipeline run traffic`` does.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from examples.demo.feed import PATIENT, say
from plugins.apis.spark import session
from plugins.apis.spark.jobs import traffic
from plugins.apis.spark.jobs.options import TrafficOptions, WindowOptions
from plugins.apis.spark.jobs.windows import windows
from plugins.apis.spark.report.files import write_report
from plugins.apis.spark.running import run_until_stopped

COUNTRY = "split_part(key, '.', 2)"  # airport.cz.lkpr
counted = WindowOptions(
    by=f"if(exchange = 'feed', {COUNTRY}, null)",
    width=1.0,
    late=0.0,  # times in a journal never decrease, so that no message is late
    exchange="results",
    prefix="country",
)
reported = TrafficOptions(
    sent="timestamp_micros(get_json_object(string(body), '$.sent') div 1000)",
    number="get_json_object(string(body), '$.sequence')",
    publisher=f"if(get_json_object(string(body), '$.number') % {PATIENT} = 0, 'pika', 'aio-pika')",
    by=f"if(exchange = 'feed', {COUNTRY}, key)",
)
journal = os.environ["JOURNAL_DIR"]
# One session for both: it takes longer to start than either.
spark = session("demo", master="local[2]", configuration={"spark.driver.memory": "1g"})
try:
    feed = spark.readStream.format("kernel").option("consumer", "demo").load(journal)
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
    whole = spark.read.format("kernel").load(journal)
    write_report(traffic.report(whole, reported), Path(os.environ["REPORT_DIR"]), subtitle=journal)
finally:
    spark.stop()
say(done=True)
