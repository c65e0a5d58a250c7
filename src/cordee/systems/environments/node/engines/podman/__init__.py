"""Podman makes the container, and commands enter it: `podman exec` and `podman run` would stand between a command and its
signals, terminal, environment and limits, and take hundreds of milliseconds for each rank.

`engine` is what the rest of Cordée sees. The other modules are what its command lines run: `container` makes a root in a
mount namespace of its own and has podman open a container on it, with a store of podman's own in memory; `run` is one command
in a container of its own, `hold` keeps one open, `enter` runs commands in that. They start in front of commands and import
little, as the embedded engine does, whose modules for the kernel, squashfs files and mount points they use.
"""
