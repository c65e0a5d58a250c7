"""Where a supervisor meets disks that are slow, refuse or stand still."""
