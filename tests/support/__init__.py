"""Fixtures and helpers common to the tests."""
