"""The drivers of the library: the async form, and the blocking form above it.

They import gRPC, whose core would print to stderr, as at the end of an idle connection.
"""

from replica.imports.io import without_grpc_lines

without_grpc_lines()
