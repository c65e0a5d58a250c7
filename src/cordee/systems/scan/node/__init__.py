"""The scanner of files, which ranks use too: `cordee.load`."""
