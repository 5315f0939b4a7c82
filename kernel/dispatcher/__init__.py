"""The matrix of pipes between threads, and the ports that engines hold.  Start with dispatcher.py."""
