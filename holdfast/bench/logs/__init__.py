"""What logs cost and give: appends, preserved sources, questions about the past, streams, and a log that is large."""
