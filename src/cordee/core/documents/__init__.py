"""The kit of documents: TOML and YAML with the line of every key, merging with origins, faults, fields."""
