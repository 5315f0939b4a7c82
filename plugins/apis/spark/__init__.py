"""Apache Spark: journals as tables and streams, Spark's results as messages, and ready-made reports.

``spark_session.py`` creates a Spark session, and finds a Java for it; ``source.py`` is the data source
``kernel``; ``jobs/`` has the jobs of ``kernel pipeline run``.  Importing this package loads neither Spark nor
Arrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plugins.apis.spark.spark_session import register as register
    from plugins.apis.spark.spark_session import session as session


def __getattr__(name: str) -> Any:
    if name in ("register", "session"):
        from plugins.apis.spark import spark_session

        return getattr(spark_session, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
