"""The kit of commands: what they print, lazy groups, quantities, bars of blocks."""
