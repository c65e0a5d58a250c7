"""What is measured and logged: samplers and recorder on the nodes, the store that seals and reads it."""
