"""Misuse: signs that a job mines or cracks instead of what the machine is for; told to people, and never acted on."""
