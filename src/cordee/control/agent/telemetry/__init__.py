"""What a node measures and its ranks log, on its way to the supervisor."""
