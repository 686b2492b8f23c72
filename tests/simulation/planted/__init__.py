"""Bugs put into the core on purpose, each a few lines: the oracle must find every one."""

from contextlib import AbstractContextManager

Patch = AbstractContextManager[object]
