"""What to ask for next time, by what runs have used; and in what two runs differ."""
