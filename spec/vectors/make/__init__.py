"""Generators of the vectors in spec/vectors, independent of the code under test.

`python -m spec.vectors.make` writes every file. The output is deterministic, and
tests/test_vectors.py compares it with the committed files.
"""
