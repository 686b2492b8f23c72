"""Benchmarks: one module per question; each prints a JSON object on its last line."""
