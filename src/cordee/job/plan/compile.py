"""Compiles a job document and a cluster profile into a Plan, and says what is wrong with it before it is submitted."""

from __future__ import annotations

from pathlib import Path

from cordee.core.backends import abilities, part_of
from cordee.core.findings import Finding
from cordee.core.registry import node_parts
from cordee.job.command import read_command
from cordee.job.load import LoadedJob
from cordee.job.plan import model
from cordee.job.plan.examination import Examinations
from cordee.job.plan.examine.whole import examine
from cordee.job.plan.placement import place
from cordee.job.plan.request import request_of, segments, tasks_of


def make_plan(loaded: LoadedJob, *, run_id: str, run_folder: Path) -> tuple[model.Plan, list[Finding]]:
    """Return the plan of a job and everything worth saying about it; an `error` finding means it must not be submitted.

    Args:
        loaded: a valid document with the profile of the cluster it is meant for.
        run_id, run_folder: of the run that the plan is for; nothing is written there.
    """
    job, cluster = loaded.job, loaded.cluster
    systems = Examinations(loaded, run_folder)
    checkpoint: model.CheckpointPolicy = systems.parts["checkpoint"]
    command = read_command(job, loaded.values.get("run"), loaded.folder)
    placement = place(job.need, cluster)
    backend_part = part_of(cluster.scheduler)
    shares_files = abilities(cluster.scheduler).shares_files
    request = request_of(loaded, placement, command)
    segment = segments(job.need.time, checkpoint.grace_s, placement, cluster.requeue)
    step = model.Step(
        name="main",
        request=request,
        tasks=tasks_of(loaded, request, command, systems.env),
        restart=model.RestartPolicy(
            retries=job.restart.retries, backoff_s=job.restart.backoff, forget_s=job.restart.forget
        ),
        segment=segment,
        **systems.parts,
    )
    plan = model.Plan(
        run=run_id,
        name=job.name,
        backend=cluster.scheduler,
        cluster=cluster.name,
        job_folder=str(loaded.folder),
        workdir=str(loaded.folder if job.code == "live" and shares_files else run_folder / "code"),
        folder=str(run_folder),
        code_digest="",
        steps=(step,),
        timeouts=model.Timeouts(
            connect_s=job.timeouts.connect,
            heartbeat_s=job.timeouts.heartbeat,
            lost_s=job.timeouts.lost,
            orphan_s=job.timeouts.orphan,
            kill_s=job.timeouts.kill,
            lease_s=job.timeouts.lease_s,
        ),
        sampling=model.Sampling(
            interval_s=job.sampling.interval,
            gpus=job.sampling.gpus,
            threads=job.sampling.threads,
            hardware=job.sampling.hardware,
            keep_s=job.sampling.keep,
        ),
        metrics=model.Metrics(
            adapters=job.metrics.adapters,
            scrape=tuple(
                model.Scrape(url=one.url, port=one.port, every_s=one.every, per=one.per, metrics=one.metrics)
                for one in job.metrics.scrape
            ),
        ),
        python=cluster.python,
        network_interface=cluster.network_interface,
        network_trusted=cluster.network_trusted,
        release_held=cluster.release_held,
        gpu_models={
            name: model.GpuFigures(
                memory_bytes=gpu.memory,
                capability=gpu.capability,
                peak_flops=None if gpu.tflops_bf16 is None else gpu.tflops_bf16 * 1e12,
                peak_bytes_per_second=gpu.bandwidth,
                power_watts=gpu.power,
            )
            for name, gpu in cluster.gpu_models.items()
        },
        node_parts=node_parts(loaded.systems),
        backend_part=backend_part,
        logs_keep_bytes=job.logs.keep,
    )
    return plan, examine(loaded, plan, placement, systems, command)
