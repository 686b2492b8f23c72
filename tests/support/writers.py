"""A deterministic author of entries: the one of the conformance kit."""

from antiphon.conformance.writers import Writer, low_key, said

__all__ = ["Writer", "low_key", "said"]
