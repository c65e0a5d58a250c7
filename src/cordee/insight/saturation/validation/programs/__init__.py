"""The labelled workloads themselves: `python -m cordee.insight.saturation.validation.programs NAME`; torch is imported here only."""
