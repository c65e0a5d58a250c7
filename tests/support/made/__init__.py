"""Run folders that no run left behind: as of thousands of GPUs, written in seconds."""
