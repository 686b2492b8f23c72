"""Processes that die at the wrong moment."""
