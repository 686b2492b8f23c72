"""A process that runs one chat template, and may be killed doing so (DECISIONS D586).

It reads frames from stdin and answers each with one on stdout: 4 bytes of length, little-endian,
and JSON. The first frame has the arguments of a Sandbox and the CPU time that the process has,
each further one the arguments of `render`, and whether the time is counted from here on. An
answer has a `text` or a `problem`.
"""

CPU_S_MAX = 5.0
"""CPU time for all that is done at load, and later for each context."""
MEMORY_BYTES_MAX = 512 * 1024**2
"""Address space of the process."""
OUT_OF_MEMORY = 3
"""Its exit status where it ran out of memory outside of the template."""
LENGTH_BYTES = 4
