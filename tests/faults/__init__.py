"""Damage to whole data folders, byte by byte, and what becomes of it."""
