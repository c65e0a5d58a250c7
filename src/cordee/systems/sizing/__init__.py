"""Sizing: the memory, the layout and the time of a training or an inference before it waits in a queue (`cordee plan`).

Formulas and the table of GPUs are on the document side and import no torch; a trace runs in a child, in the job's Python.
"""
