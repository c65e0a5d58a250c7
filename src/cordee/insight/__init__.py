"""From a run to what it means: where the time went, scores and diagnoses, advice."""
