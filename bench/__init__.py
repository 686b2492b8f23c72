"""Benchmarks: one file per question, each prints one JSON object on its last line."""
