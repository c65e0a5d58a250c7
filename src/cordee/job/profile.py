"""The models of a cluster profile."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from cordee.core.backends import HERE, is_known, known
from cordee.core.documents.fields import Count, CountOrZero, Document, Duration, Lines, Name, Size, wrong
from cordee.job.fleet_site import OffenderPolicy, SiteActions
from cordee.job.shared_data import SharedDataset

SHAPE_KEYS = ("cores", "memory", "gpus", "gpu_model")
_TO_COME = ("htcondor",)  # profiles may have them; `cordee check` says that nothing can be submitted there


def _scheduler(value: str) -> str:
    if value in _TO_COME or is_known(value):
        return value
    *names, last = [f'"{name}"' for name in dict.fromkeys([*known(), *_TO_COME])]
    raise wrong("is not one of its values", f"{', '.join(names)} or {last}")


Scheduler = Annotated[str, AfterValidator(_scheduler)]
Requeue = Literal["requeue", "resubmit", "forbidden"]


class NodeGroupTable(Document):
    """`[[partitions.NAME.groups]]`: nodes that are alike; what one of them has for jobs, and how many are `up`."""

    nodes: CountOrZero | None = None
    up: CountOrZero | None = None
    cores: Count | None = None
    memory: Size | None = None
    gpus: CountOrZero | None = None
    gpu_model: str | None = None
    features: Lines | None = None


class PartitionTable(Document):
    """`[partitions.NAME]`: limits of one partition, and what the smallest of its nodes has for jobs.

    `groups` are its kinds of nodes where they are not all alike. `accounts` and `allow_qos` are those that may use it,
    None: all. `qos` is the one that limits every job in it.
    """

    max_time: Duration | None = None
    default_time: Duration | None = None
    max_nodes: Count | None = None
    nodes: CountOrZero | None = None
    up: CountOrZero | None = None
    cores: Count | None = None
    memory: Size | None = None
    gpus: CountOrZero | None = None
    gpu_model: str | None = None
    features: Lines | None = None
    default: bool = False
    state: Literal["up", "down", "drain", "inactive"] = "up"
    qos: str | None = None
    accounts: Lines | None = None
    allow_qos: Lines | None = None
    groups: Annotated[tuple[NodeGroupTable, ...], Field(strict=False)] = ()

    @property
    def shapes(self) -> tuple[NodeGroupTable, ...]:
        """The kinds of nodes that it has, the smallest first; what a group does not say is as in the partition."""
        plain = {key: getattr(self, key) for key in SHAPE_KEYS}
        if not self.groups:
            return (NodeGroupTable(nodes=self.nodes, up=self.up, features=self.features, **plain),)
        missing = [{key: value for key, value in plain.items() if getattr(group, key) is None} for group in self.groups]
        groups = [group.model_copy(update=update) for group, update in zip(self.groups, missing, strict=True)]
        return tuple(sorted(groups, key=lambda group: (group.cores or 0, group.memory or 0, group.gpus or 0)))


class Qos(Document):
    """`[qos.NAME]`: limits of one job (`max_time`, `max_nodes`, `max_cpus`, `max_gpus`) and of one person's jobs."""

    max_time: Duration | None = None
    max_nodes: CountOrZero | None = None
    max_cpus: CountOrZero | None = None
    max_gpus: CountOrZero | None = None
    max_submit: CountOrZero | None = None
    max_jobs: CountOrZero | None = None
    over_partition: bool = False


class Account(Document):
    """`[accounts.NAME]`: what this person may use of an account; limits as in `[qos.NAME]`, which go before these."""

    qos: Lines = ()
    default_qos: str | None = None
    partitions: Lines | None = None
    default: bool = False
    max_time: Duration | None = None
    max_nodes: CountOrZero | None = None
    max_cpus: CountOrZero | None = None
    max_gpus: CountOrZero | None = None
    max_submit: CountOrZero | None = None
    max_jobs: CountOrZero | None = None


class GpuModel(Document):
    """`[gpu.MODEL]`: what one GPU can do; `tflops_bf16` dense, `bandwidth` of its memory per second, `power` in W."""

    memory: Size
    capability: Annotated[float, Field(gt=0)] | None = None
    tflops_bf16: Annotated[float, Field(gt=0)] | None = None
    bandwidth: Size | None = None
    power: Annotated[float, Field(gt=0)] | None = None


class StorageTier(Document):
    """`[storage.NAME]`: a place for data; `bandwidth` per second, quotas of one person.

    `node_bandwidth` is what one node gets of it, and `opens_per_s` how many files one node can open there per second.
    """

    path: str
    kind: Literal["memory", "node", "shared"] = "shared"
    size: Size | None = None
    bandwidth: Size | None = None
    node_bandwidth: Size | None = None
    opens_per_s: Annotated[float, Field(gt=0)] | None = None
    quota_files: Count | None = None
    quota: Size | None = None
    purge: Duration | None = None


class JobClass(Document):
    """`[classes.NAME]`: a length of job that the site favours."""

    max_time: Duration
    partition: str | None = None
    qos: str | None = None


class VettingSite(Document):
    """`[vetting]`: what holds for every vetting on the cluster.

    `history` is the folder where results are kept when a protocol says `site`, or `collector` the URL that takes them, with
    its token in `token_file`. `checks` are the folders that classes of checks may come from (None: the protocol's own),
    `rules` the site's own rules, tried before those of Cordée, and `baseline` the values of the fleet. `environments` is the
    folder of what `cordee vet prepare` makes (None: the person's cache); `offenders` and `actions` are for `cordee nodes act`.
    `users` is how the history keeps who ran a job.
    """

    history: str | None = None
    collector: str | None = None
    token_file: str | None = None
    checks: Lines | None = None
    rules: Lines = ()
    baseline: str | None = None
    users: Literal["name", "hash", "none"] = "name"
    environments: str | None = None
    offenders: OffenderPolicy = OffenderPolicy.model_construct()
    actions: SiteActions = SiteActions.model_construct()


class EnvironmentSite(Document):
    """`[environment]`: container environments on the cluster.

    `engine` is what runs them (None: the first that the machine can run). `search_path` are the site's folders of EDFs, after
    the person's own, and `store` the folder of images, where `EDF_IMAGESTORE` and `SCRATCH` name none. `step_option` are
    the options of srun by which a site enters an environment, for the engine `step`, in words as a shell has them: `{file}` is
    the EDF, `{image}` its image.
    """

    engine: Literal["namespace", "podman", "apptainer", "step"] | None = None
    search_path: Lines = ()
    store: str | None = None
    step_option: str = "--environment={file}"


class NetworkSite(Document):
    """`[network]`: how nodes are connected, where Slurm does not say.

    `file` is a topology.conf, a topology.yaml, or what `scontrol show topology` or `ibnetdiscover` printed. `groups` are the
    groups of a dragonfly: a list of names of `[switches]` for each.
    """

    file: str | None = None
    groups: dict[str, str] = Field(default_factory=dict)


class ClusterProfile(Document):
    """A whole cluster profile; `switches` names the nodes below each switch, `defaults` is laid under every job.

    `slurm_cluster` is Slurm's own name of the cluster, and `answering` the name of the Slurm that answers here: its facts
    lie under the profile's files; `nodes_elsewhere` says whether it has nodes on other machines than this one, and `runs`
    is where runs go that are given no other folder. `network_trusted`: nobody else can read what its nodes and login nodes
    send each other. `accounts`, `qos` and `reservations` are None where nothing is known of them.
    """

    name: Name = HERE
    scheduler: Scheduler = HERE
    cores: Count | None = None
    memory: Size | None = None
    gpus: CountOrZero = 0
    python: str | None = None
    runs: str | None = None
    network_interface: str | None = None
    network_trusted: bool = False
    requeue: Requeue = "requeue"
    slurm_cluster: str | None = None
    slurm_version: str | None = None
    answering: str | None = None
    nodes_elsewhere: bool | None = None
    partitions: dict[str, PartitionTable] = Field(default_factory=dict)
    accounts: dict[str, Account] | None = None
    qos: dict[str, Qos] | None = None
    reservations: Lines | None = None
    classes: dict[Name, JobClass] = Field(default_factory=dict)
    gpu_models: dict[str, GpuModel] = Field(default_factory=dict, alias="gpu")
    storage: dict[Name, StorageTier] = Field(default_factory=dict)
    datasets: dict[Name, SharedDataset] = Field(default_factory=dict)
    switches: dict[str, str] = Field(default_factory=dict)
    network: NetworkSite = NetworkSite.model_construct()
    vetting: VettingSite = VettingSite.model_construct()
    environment: EnvironmentSite = EnvironmentSite.model_construct()
    defaults: dict[str, Any] = Field(default_factory=dict)
