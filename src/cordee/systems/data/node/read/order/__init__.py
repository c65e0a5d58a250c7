"""In which order samples come, and which of them are whose: pure functions of a position."""
