"""The labelled workloads themselves: `python -m cordee.systems.score.validation.programs NAME`; torch is imported here only."""
