"""Tests of the model host, on the real small model and on a tiny one made on the spot."""
