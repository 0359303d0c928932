"""What connects elements: batches and the queues they travel in."""
