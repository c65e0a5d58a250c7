"""What a supervisor does because time passes, and how often."""
