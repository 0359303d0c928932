"""One region at work: its controller's rim, its epochs, its restores."""
