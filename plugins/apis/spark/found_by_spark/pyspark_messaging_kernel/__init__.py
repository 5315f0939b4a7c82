"""Lets Spark find the format ``kernel`` without a call of ``register``.

At the first use of a format that it does not know, Spark imports every top-level module whose name begins
with ``pyspark_`` and takes its ``DefaultSource`` (``pyspark/sql/worker/lookup_data_sources.py``).  So the
wheel installs this folder beside ``kernel`` and ``plugins``.  An editable installation does not: there a
program has to call ``register(spark)``.
"""

from plugins.apis.spark.versions import need_pyspark

# The next import would fail with an error that does not say why.
need_pyspark()

from plugins.apis.spark.source import KernelDataSource as DefaultSource  # noqa: E402

__all__ = ["DefaultSource"]
