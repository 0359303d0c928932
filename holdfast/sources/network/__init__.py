"""Lines that others send: over TCP, over UDP, over HTTP."""
