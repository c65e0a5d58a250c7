"""What a node is made of, as its kernel and its drivers tell: memory, GPUs, links, the kernel log."""
