"""Simulation of the real cores with a seeded scheduler and injected faults.

It has no sockets, disks or wall clock; `python -m tests.simulation --seed N`
replays one schedule exactly. `oracle` keeps its own record of written, stored
and acked entries, and does not use the core's verdicts.
"""
