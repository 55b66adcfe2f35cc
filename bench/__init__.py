"""Benchmarks: `python -m bench [names...] [--quick] [--json FILE]`. What the figures mean: docs/benchmarks.md."""
