"""Windows by time, by rows and by attribute; watermarks; rows that wait for them."""
