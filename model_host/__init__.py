"""Derived state: the engine that continues conversations."""

from model_host import compute_threads as compute_threads
