"""The antiphon command, against real hubs, stores and a scripted host."""
