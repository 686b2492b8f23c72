"""A process that compiles one grammar, and may be killed doing so (DECISIONS D160)."""
