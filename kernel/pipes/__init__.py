"""One-way queues between ports, in batches, and what wakes their readers.  Start with pipe.py."""
