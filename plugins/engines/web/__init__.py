"""The operator's pages over HTTP: figures for Prometheus, health (docs/decisions/0034-web.md)."""
