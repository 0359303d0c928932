"""Lines that others send: over TCP, over HTTP."""
