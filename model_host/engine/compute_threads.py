"""How compute threads wait for each other; imported before torch, which loads OpenMP."""

import os

# Two compute threads that spin while they wait lose a hundredfold as soon as another
# process wants one of two cores; this bounds the spinning.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
