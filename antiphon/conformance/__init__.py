"""The conformance kit: questions for any implementation, and reports of its answers.

`spec/conform-core.md` states the form of the questions.
"""
