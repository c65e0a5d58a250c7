"""Vetting: questions about nodes, from which a verdict comes, and what verdicts have said over time."""
