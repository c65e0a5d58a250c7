"""What is judged where a test or a step ends."""
