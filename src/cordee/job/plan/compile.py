"""Compiles a job document and a cluster profile into a Plan, and says what is wrong with it before it is submitted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

from cordee.client.variables import DISTRIBUTED, JAX
from cordee.core.backends import part_of
from cordee.core.findings import Finding
from cordee.core.parts import load
from cordee.core.registry import System, node_parts
from cordee.job.load import LoadedJob
from cordee.job.plan import model
from cordee.job.plan.examination import Examination
from cordee.job.plan.examine import examine
from cordee.job.plan.interpreter import interpreter_path
from cordee.job.plan.placement import Placement, chooses_partition, place
from cordee.job.plan.segments import segments
from cordee.job.plan.share import cpus_of_a_rank, takes_whole_nodes
from cordee.job.scripts import launches_itself


def make_plan(loaded: LoadedJob, *, run_id: str, run_folder: Path) -> tuple[model.Plan, list[Finding]]:
    """Return the plan of a job and everything worth saying about it; an `error` finding means it must not be submitted.

    Args:
        loaded: a valid document with the profile of the cluster it is meant for.
        run_id, run_folder: of the run that the plan is for; nothing is written there.
    """
    job, cluster = loaded.job, loaded.cluster
    folder = loaded.folder
    placement = place(job.need, cluster)
    asked = _Asked(loaded, run_folder)
    parts = asked.parts()
    workdir = folder if job.code == "live" else run_folder / "code"
    request = _request(loaded, placement)
    tasks = model.Tasks(
        argv=job.run,
        env={**job.env, **asked.env},
        path_prepend=() if job.environment else tuple(interpreter_path({**os.environ, **job.env})),
        launch=job.launch,
        setup=job.setup,
        mpi=job.slurm.mpi,
        bind=_bind(loaded, request),
        untold=_untold(loaded, request),
    )
    checkpoint: model.CheckpointPolicy = parts["checkpoint"]
    step = model.Step(
        name="main",
        request=request,
        tasks=tasks,
        restart=model.RestartPolicy(retries=job.restart.retries, backoff_s=job.restart.backoff),
        segment=segments(job.need.time, checkpoint.grace_s, placement, cluster.requeue),
        **parts,
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
        node_parts=node_parts(loaded.systems),
        backend_part=part_of(cluster.scheduler),
    )
    return plan, examine(loaded, plan, placement, asked.findings, asked.judged(plan))


def _metrics(loaded: LoadedJob) -> model.Metrics:
    given = loaded.job.metrics
    scrape = [
        model.Scrape(url=one.url, port=one.port, every_s=one.every, per=one.per, metrics=one.metrics)
        for one in given.scrape
    ]
    return model.Metrics(adapters=given.adapters, scrape=tuple(scrape), otlp=given.otlp)


class _Asked:
    """The systems that a job is about, asked one after the other.

    Attributes:
        env: the variables that they set for every rank.
        findings: what they found until now.
    """

    def __init__(self, loaded: LoadedJob, run_folder: Path) -> None:
        self._asked: list[tuple[System, Examination]] = [
            (system, load(system.examine)(loaded, run_folder)) for system in loaded.systems if system.examine
        ]
        brought = [examination.contribute() for _, examination in self._asked]
        self._shown = tuple(shown for one in brought for shown in one.shown)
        self.env = {name: value for one in brought for name, value in one.env.items()}
        self.findings = [finding for one in brought for finding in one.findings]

    def parts(self) -> dict[str, Any]:
        """Return their parts of the plan's step, by its fields."""
        parts: dict[str, Any] = {}
        others: dict[str, Any] = {}
        for system, examination in self._asked:
            part, findings = examination.part(self._shown)
            self.findings += findings
            if examination.field:
                parts[examination.field] = part
            elif part is not None:
                others[system.name] = part
        return {**parts, "systems": others}

    def judged(self, plan: model.Plan) -> list[Finding]:
        """Return what they say of the whole plan."""
        return [finding for _, examination in self._asked for finding in examination.judge(plan)]


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
