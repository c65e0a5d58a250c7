"""Rules: what operators want to be told of runs, as data; judged while a run goes on, and of old runs."""
