"""Inference: a checkpoint becomes an endpoint that answers, is measured, and is asked about a whole data set at once.

The system `services` runs endpoints as it runs all services. This one makes models ready for them (export, scan, fit), keeps several
instances behind one address, and brings `cordee service load` and `cordee service batch`.
"""
