"""What a data set is, what an epoch of it costs the storage, and what to do: counted without a change to anything."""
