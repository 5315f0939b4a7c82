"""Fixtures and checks for tests of kernels and of plugins.

Installed with the kernel.  Read fixtures.py first.
"""
