"""What moved with the time of a step: which metrics of which devices, how strongly, how long before or after."""
