"""Dumps of PyTorch's Flight Recorder, of all ranks, read one at a time: who hangs, where, and who is to blame."""
