"""The part of a run's telemetry that is not sealed yet: the block log, read on as it grows."""
