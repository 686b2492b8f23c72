"""Recorded conversations as data: divergences with their repair, and answers to replay.

`spec/conform-suites.md` states the form of the files; `python -m antiphon.conformance.suites`
writes those of the divergences.
"""
