"""Tests of processes killed at arbitrary times."""
