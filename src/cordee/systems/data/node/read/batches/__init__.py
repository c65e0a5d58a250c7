"""From samples to batches: decoded, put together, made ahead of the loop."""
