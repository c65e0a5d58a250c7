"""Documents compiled to one frozen Plan, the only input of submit and of the node side."""
