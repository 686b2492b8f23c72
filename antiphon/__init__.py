"""What people import and type; the protocol's generated stubs are in `antiphon.v1`."""
