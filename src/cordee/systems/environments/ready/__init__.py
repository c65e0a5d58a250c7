"""Ready environments: EDFs for PyTorch and JAX with the settings of each fabric, and what tries an environment on a machine."""
