"""The jobs as SQL: temporary views over a feed.

====================  =================================================================================
``feed``              the journal, as it is
``feed_traffic``      a row for each engine, route and key: ``traffic.per_route_and_key``
``feed_matrix``       a row for each engine and route: ``traffic.matrix``
``feed_sessions``     a row for each session of a key: ``sessions.sessions``
``feed_dead_letters`` a row for each dead letter: ``dead_letters.dead_letters``
``feed_death_causes`` a row for each queue and reason: ``dead_letters.causes``
``feed_sequences``    a row for each publisher, with a number: ``sequences.summary``
``feed_gaps``         a row for each range of missing numbers, with a number: ``sequences.gaps``
====================  =================================================================================

"With a number": these views exist only if ``create_views`` is given an expression for ``number``.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from plugins.apis.spark.jobs import dead_letters, sequences, sessions, traffic


def create_views(
    feed: DataFrame,
    *,
    name: str = "feed",
    sent: str = "sent",
    number: str = "",
    publisher: str = "engine",
    step: int = 1,
) -> list[str]:
    """Create the views; return their names.

    ``sent``, ``number`` and ``publisher`` are SQL expressions over the feed.

    They replace views of the same names, and compute nothing until they are queried.
    """
    letters = dead_letters.dead_letters(feed)
    views = {
        name: feed,
        f"{name}_traffic": traffic.per_route_and_key(feed, sent),
        f"{name}_matrix": traffic.matrix(feed),
        f"{name}_sessions": sessions.sessions(feed),
        f"{name}_dead_letters": letters,
        f"{name}_death_causes": dead_letters.causes(letters),
    }
    if number:
        views[f"{name}_sequences"] = sequences.summary(feed, number, publisher, step)
        views[f"{name}_gaps"] = sequences.gaps(feed, number, publisher, step)
    for view, frame in views.items():
        frame.createOrReplaceTempView(view)
    return list(views)
