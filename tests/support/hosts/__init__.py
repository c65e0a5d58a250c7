"""Hosts that are not there, or broken: trees of /proc and /sys, kernel logs, networks, interpreters, several nodes on one machine."""
