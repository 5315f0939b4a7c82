"""The protocol-neutral broker model: pure objects, no input or output, time handed in as ``now``."""
