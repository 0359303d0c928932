"""Events and mails, alike in every kind of store: as values, as bytes, and the large ones in parts."""
