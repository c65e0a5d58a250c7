"""From a run to what it means: comparison with peers here; scores and diagnoses on the document side."""
