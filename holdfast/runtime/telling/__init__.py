"""What a run tells about itself: events as values, the one place they are announced, and who listens."""
