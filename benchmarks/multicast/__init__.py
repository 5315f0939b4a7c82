"""Multicast: the kernel's PGM and libzmq's, each in a network of namespaces made for the measurement."""
