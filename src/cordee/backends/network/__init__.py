"""How the nodes of a cluster are connected: where that is described, and the forms of such descriptions."""
