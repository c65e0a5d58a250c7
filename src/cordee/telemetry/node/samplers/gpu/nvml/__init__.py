"""NVIDIA's GPUs as NVML shows them: counters of the driver, and of GPM where there is one."""
