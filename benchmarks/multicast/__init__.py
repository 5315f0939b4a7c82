"""Multicast side by side: the kernel's PGM and libzmq's, each in a network of namespaces that is made for the measurement."""
