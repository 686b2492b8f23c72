"""Tests of the model host, on the real small model and on a tiny one made on the spot."""

import os

# Before torch loads OpenMP: by default its threads spin for milliseconds at every barrier.
# With another process on the same two cores a decode step then takes 1 s instead of 40 ms;
# alone it takes 24 ms, and 27 ms with this.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
