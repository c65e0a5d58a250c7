"""What is shown of a run, and who says it: the ports by which systems add to reports, commands and pages."""
