"""The standard metrics: one name, unit and meaning whatever measured them. Sources give those they can, and no others.

Names follow Prometheus' base units; ratios are 0-1 and are means over the sample's interval unless said otherwise.
"""

from __future__ import annotations

from typing import NamedTuple

WHOLE_MACHINE = "the whole machine"  # what pressure is of where no control group of the job tells its own


class Metric(NamedTuple):
    """One standard metric.

    Attributes:
        name: as it stands in telemetry.
        unit: `ratio`, `bytes`, `bytes/s`, `watts`, `hertz`, `celsius`, `cores`, or what is counted.
        meaning: one sentence.
    """

    name: str
    unit: str
    meaning: str


# Devices are GPUs, or instances of a GPU (MIG), by UUID.
GPU = (
    Metric("gpu_graphics_ratio", "ratio", "Time in which a kernel was on the GPU: the share of time in use."),
    Metric("gpu_sm_ratio", "ratio", "Time x SMs in which an SM held at least one warp, waiting warps included."),
    Metric("gpu_occupancy_ratio", "ratio", "Warps held by the SMs, of the most they can hold."),
    Metric("gpu_tensor_ratio", "ratio", "Cycles in which the tensor pipe, of any precision, was active."),
    Metric("gpu_tensor_dfma_ratio", "ratio", "Cycles in which the tensor pipe did double precision."),
    Metric("gpu_tensor_hmma_ratio", "ratio", "Cycles in which the tensor pipe did half precisions (bf16, fp16, TF32)."),
    Metric("gpu_tensor_imma_ratio", "ratio", "Cycles in which the tensor pipe did integers."),
    Metric("gpu_fp64_ratio", "ratio", "Cycles in which the fp64 pipe was active."),
    Metric("gpu_fp32_ratio", "ratio", "Cycles in which the fp32 pipe was active."),
    Metric("gpu_fp16_ratio", "ratio", "Cycles in which the fp16 pipe (no tensor cores) was active."),
    Metric("gpu_dram_ratio", "ratio", "Cycles in which the memory interface moved data, of the peak."),
    Metric("gpu_pcie_transmit_bytes_per_second", "bytes/s", "Sent by the GPU over PCIe."),
    Metric("gpu_pcie_receive_bytes_per_second", "bytes/s", "Received by the GPU over PCIe."),
    Metric(
        "gpu_c2c_transmit_bytes_per_second", "bytes/s", "Sent over the link to the CPU's memory (Grace), all links."
    ),
    Metric("gpu_c2c_receive_bytes_per_second", "bytes/s", "Received over the link to the CPU's memory, all links."),
    Metric("gpu_nvlink_transmit_bytes_per_second", "bytes/s", "Sent to other GPUs over NVLink or XGMI, all links."),
    Metric(
        "gpu_nvlink_receive_bytes_per_second", "bytes/s", "Received from other GPUs over NVLink or XGMI, all links."
    ),
    Metric("gpu_utilization_ratio", "ratio", "Time with a kernel, as coarse counters tell it (NVML basic, amdsmi)."),
    Metric("gpu_memory_busy_ratio", "ratio", "Time in which memory was read or written: not a share of bandwidth."),
    Metric("gpu_memory_used_bytes", "bytes", "Memory in use, now."),
    Metric("gpu_memory_total_bytes", "bytes", "Memory there is."),
    Metric("gpu_power_watts", "watts", "Power; from the energy counter where there is one, else at the moment."),
    Metric("gpu_clock_sm_hertz", "hertz", "Clock of the SMs, now."),
    Metric("gpu_clock_sm_max_hertz", "hertz", "Highest clock of the SMs."),
    Metric("gpu_temperature_celsius", "celsius", "Temperature, now."),
    Metric("gpu_throttle_thermal_ratio", "ratio", "Time with clocks held down by heat."),
    Metric("gpu_throttle_power_ratio", "ratio", "Time with clocks held down by a cap or a brake of power."),
    Metric("gpu_processes", "processes", "Processes with memory of the GPU, now; of other users too, where told."),
)

# Devices are node names.
NODE = (
    Metric("cpu_busy_ratio", "ratio", "All CPUs of the machine: time not idle."),
    Metric("memory_used_bytes", "bytes", "Memory in use, of what this job may use."),
    Metric("memory_total_bytes", "bytes", "Memory this job may use."),
    Metric("load_1m", "processes", "Runnable and waiting processes, mean of a minute."),
    Metric("disk_read_bytes_per_second", "bytes/s", "Read from local disks."),
    Metric("disk_write_bytes_per_second", "bytes/s", "Written to local disks."),
    Metric("job_disk_read_bytes_per_second", "bytes/s", "Read from local disks by the job's cgroup."),
    Metric("job_disk_write_bytes_per_second", "bytes/s", "Written to local disks by the job's cgroup."),
    Metric("storage_read_bytes_per_second", "bytes/s", "Read from shared file systems; Lustre: as programs read."),
    Metric("storage_write_bytes_per_second", "bytes/s", "Written to shared file systems; Lustre: as programs write."),
    Metric("storage_read_operations_per_second", "operations/s", "Reads of shared file systems."),
    Metric("storage_write_operations_per_second", "operations/s", "Writes to shared file systems."),
    Metric("storage_open_operations_per_second", "operations/s", "Files opened on shared file systems."),
    Metric("storage_metadata_operations_per_second", "operations/s", "Looks at and changes of names and attributes."),
    Metric("storage_requests", "requests", "Reads and writes of shared file systems under way, mean of the interval."),
    Metric("network_receive_bytes_per_second", "bytes/s", "Received over IP interfaces."),
    Metric("network_transmit_bytes_per_second", "bytes/s", "Sent over IP interfaces."),
    Metric("fabric_receive_bytes_per_second", "bytes/s", "Received over InfiniBand or Slingshot adapters."),
    Metric("fabric_transmit_bytes_per_second", "bytes/s", "Sent over InfiniBand or Slingshot adapters."),
    Metric("pressure_cpu_ratio", "ratio", "Time in which some task of the job waited for a CPU (PSI)."),
    Metric("pressure_memory_ratio", "ratio", "Time in which some task of the job waited for memory (PSI)."),
    Metric("pressure_io_ratio", "ratio", "Time in which some task of the job waited for storage (PSI)."),
    Metric("cpu_throttled_ratio", "ratio", "Time in which the job's cgroup was stopped by its CPU quota."),
    Metric("cpu_power_watts", "watts", "Power of the CPU packages and their memory (RAPL)."),
    Metric("node_power_watts", "watts", "Power of the whole node, as the board tells it."),
)

# Devices are global ranks.
RANK = (
    Metric("cpu_cores_ratio", "cores", "CPU seconds per second of the rank's process tree."),
    Metric("cpu_share_cores", "cores", "Cores that fall to the rank: each CPU counts 1/n where n ranks may use it."),
    Metric("memory_rss_bytes", "bytes", "Resident memory of the tree; shared pages count in each process."),
    Metric("io_read_bytes_per_second", "bytes/s", "Read from the storage layer, not from the page cache."),
    Metric("io_write_bytes_per_second", "bytes/s", "Written to the storage layer."),
    Metric("processes", "processes", "Processes of the tree."),
    Metric("thread_busiest_ratio", "ratio", "CPU time per second of the busiest thread of the tree."),
    Metric(
        "cpu_queued_ratio",
        "ratio",
        "Time in which a main thread of the tree was ready to run and had no CPU; of the one that waited most.",
    ),
    Metric(
        "instructions_per_cycle", "instructions", "Instructions per cycle of the tree, where perf events are allowed."
    ),
)

# Devices are a node's name and a class of destinations: `site`, `registries`, `object_stores`, `listed`, `rest`.
EGRESS = (
    Metric("egress_transmit_bytes_per_second", "bytes/s", "Sent by the job to destinations of a class."),
    Metric("egress_receive_bytes_per_second", "bytes/s", "Received by the job from destinations of a class."),
    Metric("egress_connections", "connections", "Connections of the job to destinations of a class, now."),
)

GROUPS = {"gpu": GPU, "node": NODE, "rank": RANK, "egress": EGRESS}
METRICS = {metric.name: metric for metrics in GROUPS.values() for metric in metrics}


def described(name: str, source: str) -> dict[str, str]:
    """Return a standard metric as a schema of the block log has it.

    Raises:
        KeyError: there is no such metric.
    """
    return {"name": name, "unit": METRICS[name].unit, "source": source}
