"""What vettings have said over time, and what to do with nodes that offend."""
