"""Threads that host engines, and what keeps the engines alive.  Start with poll_thread.py."""
