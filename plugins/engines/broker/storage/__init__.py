"""What a broker stores on disk: a log for what must survive, another for what does not fit into memory.

Start with ``disk_store`` (what the broker calls), then ``log`` (how it gets to disk) and ``recovery``
(how it comes back).  ``docs/durability.md`` tells the format and the promises.
"""
