"""What serves pages: connections, tokens, the shapes of answers that more than one room gives."""
