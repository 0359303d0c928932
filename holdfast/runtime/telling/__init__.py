"""What a run tells about itself: events as values, the one place they are announced, and who listens."""

from holdfast.runtime.telling import beginning_events as beginning_events  # so that `decode` knows its kinds
from holdfast.runtime.telling import window_events as window_events
