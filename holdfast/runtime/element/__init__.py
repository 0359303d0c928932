"""One element at work: its loop, its steps, its operators' state."""
