"""The GPUs of a node: which there are, and what the libraries of their drivers say of them."""
