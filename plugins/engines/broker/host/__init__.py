"""The broker as an engine: what it owns besides the model, and what its front ends are given."""
