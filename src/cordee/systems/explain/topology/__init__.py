"""Where a job sits on the network: switches and groups that it spans, distances, neighbours that cross, a picture."""
