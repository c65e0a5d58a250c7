"""What a supervisor does with the telemetry of its nodes: stored, acknowledged, and told to those who wait for it."""
