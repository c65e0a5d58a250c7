"""Packing: many small files become few large ones, once, the same bytes for any number of workers and after any restart."""
