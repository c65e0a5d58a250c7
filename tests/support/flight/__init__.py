"""Flight Recorder dumps of trainings that never ran, and what goes wrong in them."""
