"""What systems offer each other: a type for each port here, what fills it in a system's `offers`; absent means unknown."""
