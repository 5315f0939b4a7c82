"""What people ask of a kept feed: one file a job.

Each file has functions from DataFrames to DataFrames, which programs import, and one that makes a report (or,
of a job that streams, rows to be sent) of them, which ``kernel pipeline run`` calls.  ``feed.py`` has what
they share.
"""
