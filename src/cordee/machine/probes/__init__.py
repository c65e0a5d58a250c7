"""What programs that load a GPU share: devices, timed work, the answer to whoever started them."""
