"""From the results of many nodes to a verdict: who starts, who is left out, and why."""
