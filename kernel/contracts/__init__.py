"""What flows, and who may call whom: all that a plugin may import.  Start with message.py, then engine.py."""
