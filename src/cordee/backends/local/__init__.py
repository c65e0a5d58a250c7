"""One machine: nodes are processes under a keeper that outlives the terminal."""
