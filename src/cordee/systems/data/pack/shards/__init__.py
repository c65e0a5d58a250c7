"""The packed format: WebDataset tar shards, and the index beside them."""
