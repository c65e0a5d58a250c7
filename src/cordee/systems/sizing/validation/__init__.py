"""How well traces predict: small models of many families, traced and then run for real on the CPU."""
