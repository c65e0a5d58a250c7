"""The pages and the HTTP interface of `cordee serve`: read-only over run folders, on this machine unless told otherwise."""
