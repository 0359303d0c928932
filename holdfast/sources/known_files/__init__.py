"""Files that a source knows: how they are listed, what is remembered of them and stored, renamed ones, those that came meanwhile."""
