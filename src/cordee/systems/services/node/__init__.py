"""Services on the node: the program is started, asked whether it is ready, watched and ended."""
