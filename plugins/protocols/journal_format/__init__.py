"""The journal's format on disk: segments of Arrow IPC, an index that is the commit log, a reader.

A journal is a directory of segments.  A segment is a data file of commits and an index of 64-byte entries,
one entry per commit.  A commit is one record batch with the envelopes of its rows.

The modules that read import the standard library and pyarrow only, nothing of the kernel: a Spark worker that
reads a journal starts fast.  Start with ``schema.py`` (columns), then ``index.py``, ``segment.py`` and
``reader.py``; ``docs/journal_format.md`` specifies the bytes.
"""
