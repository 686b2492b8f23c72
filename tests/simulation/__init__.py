"""The real core under a seeded scheduler, against every fault we can think of.

No sockets, no disks, no wall clock: `python -m tests.simulation --seed N`
replays one schedule exactly. `oracle` keeps its own history of what was written,
stored and acked, and never asks the core whether the core is right.
"""
