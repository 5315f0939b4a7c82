"""The matrix of pipes between threads, and the ports that engines hold.  Read dispatcher.py first."""
