"""``kernel inspect``: from captured packets to conversations and dissectors. Start with ``inspector.py``."""
