"""The only place where a sans-I/O protocol meets a loop.  Start with stream_host.py."""
