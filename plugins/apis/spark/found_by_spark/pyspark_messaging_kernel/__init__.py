"""Where Spark finds the format ``kernel`` by itself.

At the first use of a format that it does not know, Spark imports every top-level module whose name begins
with ``pyspark_`` and takes its ``DefaultSource`` (``pyspark/sql/worker/lookup_data_sources.py``).  So the
wheel installs this folder beside ``kernel`` and ``plugins``; an editable installation does not, and says
``register(spark)``.
"""

from plugins.apis.spark.source import KernelDataSource as DefaultSource

__all__ = ["DefaultSource"]
