"""The drivers of the library: the async form, and the blocking form above it."""
