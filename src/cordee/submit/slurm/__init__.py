"""Slurm: one batch script per run, submitted once, asked about rarely."""

from __future__ import annotations

from cordee.submit.slurm.submitter import SlurmSubmitter

__all__ = ["SlurmSubmitter"]
