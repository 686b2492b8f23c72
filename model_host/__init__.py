"""Derived state: the engine that continues conversations."""
