"""What a log decides, as pure code: no files, no clock, no threads."""
