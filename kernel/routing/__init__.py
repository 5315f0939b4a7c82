"""Who gets a message: to all, in turn, by key, back.  Start with fan_out.py."""
