"""Tests; each is named after the rule it holds."""
