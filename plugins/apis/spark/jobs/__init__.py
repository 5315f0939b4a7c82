"""The jobs of ``kernel pipeline``: queries on the messages of a journal, one file for each job.

Each file has functions from DataFrames to DataFrames, which programs may import, and one that ``kernel
pipeline run`` calls: it makes a report of them or, for a streaming job, the messages to send.  ``feed.py``
has what they share.
"""
