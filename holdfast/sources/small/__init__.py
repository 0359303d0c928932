"""Small slices that the driver reads by itself: how small they are, and of which text it is certain what it means."""
