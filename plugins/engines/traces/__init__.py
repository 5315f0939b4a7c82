"""Traces: spans of OpenTelemetry for messages whose publishers are traced (docs/decisions/0041-traces.md)."""
