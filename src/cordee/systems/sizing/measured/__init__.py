"""What runs used of memory beside what was planned, and what that says of the next plan."""
