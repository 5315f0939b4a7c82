"""For dissectors: frames and messages of a stream, and counters of what goes by.  Start with framed.py."""
