"""The embedded engine: namespaces, an overlay, bind mounts. Rootless, standard library only.

`engine` is what the rest of Cordée sees: it turns an environment into command lines. The other modules are what those
command lines run. They start in front of every command, so they import little: no typing, dataclasses, json, re, enum or
subprocess on the way to a command, and none of the packages above this one.
"""
