"""Batch inference: a model is asked about each sample of a data set, by many tasks in one allocation, each sample exactly once."""
