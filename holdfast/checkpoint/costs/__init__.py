"""What checkpoints and restores cost: measured, and predicted from that."""
