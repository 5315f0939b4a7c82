"""STOMP 1.0, 1.1 and 1.2, sans-I/O: bytes in, frames out; frames in, bytes out.

``FrameReader`` reads frames of a client or of a server; ``encode_frame``, ``MessageTemplate`` and
``SendTemplate`` write them.  What the headers of a message mean is in ``properties.py``.  STOMP does not say
what a destination is: ``destinations.py`` has the forms of RabbitMQ's plugin.
"""
