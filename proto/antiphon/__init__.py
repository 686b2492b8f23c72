"""Generated stubs of the protocol; the .proto files lie beside them."""
