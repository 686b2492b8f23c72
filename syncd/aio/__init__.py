"""Drivers of the hub core."""
