"""The packed format: WebDataset tar shards, and one index beside them that says where every sample lies."""
