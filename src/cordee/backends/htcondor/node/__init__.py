"""What runs where a run on HTCondor runs: its first process, and its way home."""
