"""Slurm's `--environment`: a plugin in C (cordee.c, node.c), what it runs at submission (`cordee.systems.environments.spank_render`) and on nodes (`hold`)."""
