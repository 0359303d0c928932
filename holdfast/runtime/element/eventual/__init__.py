"""Elements whose aggregate or join keeps its checkpoints in its output log: steps that are recorded, restores, and the life between them."""
