"""The only place where a sans-I/O protocol meets a loop.  Start with connection.py and stream_host.py."""
