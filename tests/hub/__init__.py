"""The hub's services over real gRPC and SQLite."""
