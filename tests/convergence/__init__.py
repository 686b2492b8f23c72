"""Random logs, and the proof that their covered entries alone give the same view.

`python -m tests.convergence --logs 100000` is the long form (`make converge`).
"""
