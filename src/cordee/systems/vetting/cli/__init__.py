"""The commands of vetting."""
