"""What checkpoints cost: bytes, pauses, throughput, restores."""
