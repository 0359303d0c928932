"""The command line: run, explain, status, stop, resume, demo, bench."""
