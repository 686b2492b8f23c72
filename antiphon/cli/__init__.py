"""The antiphon command."""
