"""A journal as a table: how many messages have which key.

python examples/spark/count_by_key.py JOURNAL
"""

import sys

from plugins.apis.spark import session

spark = session("count by key", master="local[2]")

feed = spark.read.format("kernel").option("columns", "key").load(sys.argv[1])
feed.groupBy("key").count().orderBy("key").show()

spark.stop()
