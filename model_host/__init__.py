"""Derived state: the engine that continues conversations."""

import os

# Two compute threads that spin while they wait lose a hundredfold as soon as another
# process wants one of two cores; this bounds the spinning. Read when torch loads OpenMP.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
