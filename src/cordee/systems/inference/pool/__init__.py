"""Several instances of one model behind one address."""
