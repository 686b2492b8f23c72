"""The model host: it continues conversations, and holds derived state alone."""
