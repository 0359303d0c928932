"""`holdfast logs`: look into persistent streams, and keep them."""
