"""Kubernetes: the manifests of a service, and what is wrong with some."""
