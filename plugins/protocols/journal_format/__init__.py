"""The journal's format on disk: segments of Arrow IPC, an index that is the commit log, a reader.

Imports the standard library and pyarrow only, nothing of the kernel, so that a Spark worker that reads a
journal starts fast.  Begin with ``schema.py``; ``docs/journal_format.md`` specifies the bytes.
"""
