"""The loader alone, measured beside what the storage gives: `cordee data bench`."""
