"""The hub: transport and durability."""
