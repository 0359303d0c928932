"""Variables that operators declare: at work, tracked, and as stored versions."""
