"""What is worth saying about a plan before it runs: its command, its nodes, its options, its storage."""
