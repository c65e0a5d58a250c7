"""Compiles a job document and a cluster profile into a Plan, and says what is wrong with it before it is submitted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from cordee.backends import part_of
from cordee.checkpoint.folder import MANIFEST, candidates, checkpoint_at, find_checkpoints
from cordee.checkpoint.folder import Checkpoint as Found
from cordee.client.variables import DISTRIBUTED, JAX
from cordee.findings import Finding
from cordee.plan import model
from cordee.plan.examine import examine
from cordee.plan.interpreter import interpreter_path
from cordee.plan.placement import Placement, chooses_partition, place
from cordee.plan.segments import segments
from cordee.plan.share import cpus_of_a_rank, takes_whole_nodes
from cordee.spec.job import EXISTING, FRESH, SELF, Checkpoint
from cordee.spec.load import LoadedJob
from cordee.spec.scripts import launches_itself


def make_plan(loaded: LoadedJob, *, run_id: str, run_folder: Path) -> tuple[model.Plan, list[Finding]]:
    """Return the plan of a job and everything worth saying about it; an `error` finding means it must not be submitted.

    Args:
        loaded: a valid document with the profile of the cluster it is meant for.
        run_id, run_folder: of the run that the plan is for; nothing is written there.
    """
    job, cluster = loaded.job, loaded.cluster
    folder = loaded.folder
    placement = place(job.need, cluster)
    data, remarks = _data(loaded)
    environment, found = _environment(loaded, run_folder, data)
    workdir = folder if job.code == "live" else run_folder / "code"
    request = _request(loaded, placement)
    tasks = model.Tasks(
        argv=job.run,
        env={**job.env, **{one.variable: one.place for one in data}},
        path_prepend=() if job.environment else tuple(interpreter_path({**os.environ, **job.env})),
        launch=job.launch,
        setup=job.setup,
        mpi=job.slurm.mpi,
        bind=_bind(loaded, request),
        untold=_untold(loaded, request),
    )
    checkpoint = _checkpoint(job.checkpoint, folder, run_folder)
    step = model.Step(
        name="main",
        request=request,
        tasks=tasks,
        vet=model.VetPolicy(
            commands=job.vet.commands,
            modules=job.vet.modules,
            min_memory_bytes=job.vet.min_memory,
            min_disk_bytes=job.vet.min_disk,
            max_load_ratio=job.vet.max_load,
            deadline_s=job.vet.deadline,
            protocol=loaded.protocol.resolved() if loaded.protocol else None,
        ),
        checkpoint=checkpoint,
        restart=model.RestartPolicy(retries=job.restart.retries, backoff_s=job.restart.backoff),
        segment=segments(job.need.time, checkpoint.grace_s, placement, cluster.requeue),
        environment=environment,
        data=data,
    )
    plan = model.Plan(
        run=run_id,
        name=job.name,
        backend=cluster.scheduler,
        cluster=cluster.name,
        job_folder=str(folder),
        workdir=str(workdir),
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
        sampling=model.Sampling(interval_s=job.sampling.interval, gpus=job.sampling.gpus, threads=job.sampling.threads),
        metrics=_metrics(loaded),
        python=cluster.python,
        network_interface=cluster.network_interface,
        network_trusted=cluster.network_trusted,
        backend_part=part_of(cluster.scheduler),
    )
    return plan, examine(loaded, plan, placement, [*remarks, *found])


def _metrics(loaded: LoadedJob) -> model.Metrics:
    given = loaded.job.metrics
    scrape = [
        model.Scrape(url=one.url, port=one.port, every_s=one.every, per=one.per, metrics=one.metrics)
        for one in given.scrape
    ]
    return model.Metrics(adapters=given.adapters, scrape=tuple(scrape), otlp=given.otlp)


def _data(loaded: LoadedJob) -> tuple[tuple[model.DataSet, ...], list[Finding]]:
    """Return where data sets lie; looking at them is imported by the jobs that have some."""
    if not loaded.job.data:
        return (), []
    from cordee.plan.examine_data import plan_data

    return plan_data(loaded)


def _environment(
    loaded: LoadedJob, run_folder: Path, data: tuple[model.DataSet, ...]
) -> tuple[model.EnvironmentPlan | None, list[Finding]]:
    """Return what the ranks run in; reading EDFs and images is imported by the jobs that have one."""
    if not loaded.job.environment:
        return None, []
    from cordee.plan.environment import plan_environment

    return plan_environment(loaded, run_folder, data=data)


def _bind(loaded: LoadedJob, request: model.Request) -> Literal["gpu", "none"]:
    """Return whether ranks are put near their GPUs: where each has one, the agent starts them, and nothing else is said."""
    need = loaded.job.need
    if loaded.job.launch != "fork" or not request.gpus_per_node:
        return "none"
    return need.bind or ("gpu" if request.ranks_per_node == request.gpus_per_node else "none")


def _untold(loaded: LoadedJob, request: model.Request) -> tuple[str, ...]:
    """Return what the rank is not told where it is alone and nothing says that it is meant to be a world.

    Scripts take RANK for the word of a launcher and then ask for the backend of GPUs, which a laptop has not; a command
    that starts ranks of its own must not hand this one's number to them.
    """
    if request.nodes * request.ranks_per_node > 1 or isinstance(loaded.job.need.ranks_per_node, int):
        return ()
    if launches_itself(loaded.job.run):
        return (*DISTRIBUTED, *JAX)
    return () if request.gpus_per_node else DISTRIBUTED


def _request(loaded: LoadedJob, placement: Placement) -> model.Request:
    need = loaded.job.need
    given = need.ranks_per_node
    by_itself = 1 if launches_itself(loaded.job.run) else max(1, need.gpus_per_node)
    ranks = given if isinstance(given, int) else by_itself
    cpus = need.cpus_per_rank or cpus_of_a_rank(need, ranks, placement)
    return model.Request(
        nodes=need.nodes,
        spare_nodes=need.spare_nodes,
        min_nodes=need.min_nodes or need.nodes,
        gpus_per_node=need.gpus_per_node,
        ranks_per_node=ranks,
        cpus_per_rank=cpus,
        memory_bytes=need.memory,
        time_s=need.time,
        gpu=need.gpu,
        scheduler=model.Scheduler(
            account=need.account,
            partition=placement.partition if chooses_partition(loaded.cluster) else need.partition,
            qos=placement.qos if chooses_partition(loaded.cluster) else need.qos,
            constraint=need.constraint,
            reservation=need.reservation,
            options=loaded.job.slurm.options,
            gpu_type=placement.gpu_type,
            exclusive=takes_whole_nodes(need, ranks, cpus, placement) or "--exclusive" in loaded.job.slurm.options,
        ),
    )


def _checkpoint(document: Checkpoint | None, folder: Path, run_folder: Path) -> model.CheckpointPolicy:
    declared = document or Checkpoint()
    path = folder / declared.path if declared.path is not None else run_folder / "checkpoints"
    there = find_checkpoints(path, declared.pattern) if declared.path is not None else []
    return model.CheckpointPolicy(
        path=str(path),
        pattern=declared.pattern,
        resume="self" if declared.resume == (SELF,) else declared.resume,
        signal=declared.signal,
        every_s=declared.every,
        grace_s=declared.grace,
        ignore={checkpoint.name: checkpoint.mtime_ns for checkpoint in there},
        declared=document is not None,
        own_folder=declared.path is None,
        begin=_begin(declared, folder, there),
    )


def _begin(declared: Checkpoint, folder: Path, there: list[Found]) -> model.Begin | None:
    """Return what the run begins from by an explicit word; empty `checkpoints` when there is nothing of the kind."""
    given = declared.begin
    if given in (None, FRESH):
        return None
    if given != EXISTING:
        place = folder / Path(given).expanduser()
        one = checkpoint_at(place) if _is_checkpoint(place, declared.pattern) else None
        there = [one] if one is not None else find_checkpoints(place, declared.pattern)
    there = sorted(there, key=lambda found: (-1 if found.step is None else found.step, found.mtime_ns))
    return model.Begin(given=given, checkpoints={found.path: found.mtime_ns for found in there})


def _is_checkpoint(place: Path, pattern: str) -> bool:
    """Return whether a path is a checkpoint and no folder that holds some: by its manifest, else by what it holds."""
    return place.is_file() or (place / MANIFEST).exists() or not candidates(place, pattern)
