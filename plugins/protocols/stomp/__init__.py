"""STOMP 1.0, 1.1 and 1.2, sans-I/O: bytes in, frames out; frames in, bytes out.

``FrameReader`` reads frames, ``encode_frame`` and ``MessageTemplate`` write them.  What the headers of a
message mean is in ``properties.py``.  Destinations are not here: they belong to the server.
"""
