"""Tests of the model host, on the real small model and on a tiny generated one."""
