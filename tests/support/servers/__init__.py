"""Servers under test on this machine: of pages, objects and images; and a browser."""
