"""A journal as a stream: messages about errors are copied into a second journal, each exactly once.

python examples/spark/copy_errors.py JOURNAL ERRORS CHECKPOINT
"""

import sys

from plugins.apis.spark import session

journal, errors, checkpoint = sys.argv[1:]
spark = session("copy errors", master="local[2]")

feed = spark.readStream.format("kernel").option("consumer", "errors").load(journal)
query = (
    feed.where("key like '%.error'")
    .select("exchange", "key", "headers", "body")
    .writeStream.format("kernel")
    .option("path", errors)
    .option("checkpointLocation", checkpoint)
    .trigger(availableNow=True)  # end when all is read; without it the query goes on until it is stopped
    .start()
)
query.awaitTermination()

spark.stop()
