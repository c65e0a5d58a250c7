"""Who may ask, and from where: the gate in front of every route."""
