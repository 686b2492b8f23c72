"""The hub: transport and durability. Modules outside io/ are pure (DECISIONS D83)."""
