"""`holdfast chaos`: the user's program under real faults, the command, its lives and its tables."""
