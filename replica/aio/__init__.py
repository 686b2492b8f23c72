"""Drivers of the pure core: disk, clock and network."""
