"""``kernel inspect``: from captured packets to conversations, and to the dissectors of plugins.  Start with ``inspector.py``.

Only ``captures.py`` knows scapy, and loads it when it is used.  No message ever passes here.
"""
