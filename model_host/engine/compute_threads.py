"""The wait of compute threads for each other; imported before torch, which loads OpenMP."""

import os

# Two compute threads that spin while they wait get a hundred times slower once another
# process needs one of two cores; this bounds the spinning.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
