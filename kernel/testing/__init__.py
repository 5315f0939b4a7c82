"""Shipped: what tests of kernels and of plugins stand on.  Start with fixtures.py."""
