"""What sends notices from the node of the supervisor."""
