"""Canonical state: the log, its rules and the replica everyone builds on."""
