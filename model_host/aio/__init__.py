"""Drivers of the model host."""
