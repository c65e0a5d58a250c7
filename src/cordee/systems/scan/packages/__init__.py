"""Packages: what a project asks for, what is installed, and what is known of it."""
