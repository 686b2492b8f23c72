"""A process that compiles one grammar, and may be killed doing so (DECISIONS D160)."""

OUT_OF_MEMORY = 3
"""The exit status of a process that a grammar takes too much memory of."""
THREAD_STACK_BYTES = 8 * 1024**2
"""Stack of a thread of the host, in which grammars are compiled that passed this process."""
