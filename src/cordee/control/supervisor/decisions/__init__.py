"""What a supervisor decides: pure machines that take events and give commands (docs/decisions/0027)."""
