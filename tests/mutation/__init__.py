"""Small wrong versions of the core, run against spec/vectors alone.

`make mutants` runs all of them. One that survives means that an implementation may be
wrong in this way and pass all vectors.
"""
