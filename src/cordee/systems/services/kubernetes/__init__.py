"""Services on Kubernetes: typed manifests, what is wrong with them, a repository of them, and applying them."""
