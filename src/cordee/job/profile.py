"""The models of a cluster profile."""

from __future__ import annotations

import ipaddress
import os
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from cordee.core.backends import HERE, is_known, known
from cordee.core.documents.fields import Count, CountOrZero, Document, Duration, Lines, Name, Size, wrong
from cordee.job.egress import EgressSite, FetchSite, MisuseSite
from cordee.job.fleet_site import OffenderPolicy, SiteActions
from cordee.job.shared_data import SharedDataset

SHAPE_KEYS = ("cores", "memory", "gpus", "gpu_model")
RANCHER_PROJECT = r"(c-[a-z0-9-]{1,40}|local):p-[a-z0-9-]{1,40}"


def _scheduler(value: str) -> str:
    if is_known(value):
        return value
    *names, last = [f'"{name}"' for name in known()]
    raise wrong("is not one of its values", f"{', '.join(names)} or {last}")


def _networks(lines: tuple[str, ...]) -> tuple[str, ...]:
    try:
        return tuple(str(ipaddress.ip_network(line)) for line in lines)
    except ValueError as error:
        raise wrong(f"holds what is no network: {error}", '["10.0.0.0/8"]') from None


def _attributes(value: dict[str, Any]) -> dict[str, Any]:
    for name, one in value.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or not isinstance(one, (str, int, float, bool)):
            raise wrong(
                "holds what is no attribute of a job", "names with texts, numbers or booleans: { WantGPULab = true }"
            )
    return value


Attributes = Annotated[dict[str, Any], AfterValidator(_attributes)]
Networks = Annotated[Lines, AfterValidator(_networks)]
NamespaceName = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
Scheduler = Annotated[str, AfterValidator(_scheduler)]
Requeue = Literal["requeue", "resubmit", "forbidden"]


class NodeGroupTable(Document):
    """`[[partitions.NAME.groups]]`: nodes that are alike; what one of them has for jobs, and how many are `up`."""

    nodes: CountOrZero | None = None
    """How many nodes of the partition are of this kind."""
    up: CountOrZero | None = None
    """How many of them take jobs now; found out, seldom written."""
    cores: Count | None = None
    """CPUs that one node has for jobs, as Slurm counts them."""
    memory: Size | None = None
    """Memory that one node has for jobs."""
    gpus: CountOrZero | None = None
    """GPUs of one node."""
    gpu_model: str | None = None
    """Their model, as the scheduler names it."""
    features: Lines | None = None
    """Features of these nodes, which `[need] constraint` may name."""


class PartitionTable(Document):
    """`[partitions.NAME]`: limits of one partition, and what the smallest of its nodes has for jobs."""

    max_time: Duration | None = None
    """The longest that one job may take."""
    default_time: Duration | None = None
    """What a job gets that names no time."""
    max_nodes: Count | None = None
    """The most nodes of one job."""
    nodes: CountOrZero | None = None
    """How many nodes it has."""
    up: CountOrZero | None = None
    """How many of them take jobs now; found out, seldom written."""
    cores: Count | None = None
    """CPUs that its smallest node has for jobs, as Slurm counts them."""
    memory: Size | None = None
    """Memory that its smallest node has for jobs."""
    gpus: CountOrZero | None = None
    """GPUs of one node."""
    gpu_model: str | None = None
    """Their model, as the scheduler names it."""
    features: Lines | None = None
    """Features of its nodes, which `[need] constraint` may name."""
    default: bool = False
    """Whether it is the partition of jobs that name none."""
    state: Literal["up", "down", "drain", "inactive"] = "up"
    """Whether it takes jobs and runs them."""
    qos: str | None = None
    """The QOS that limits every job in it."""
    accounts: Lines | None = None
    """Accounts that may use it; without them, all."""
    allow_qos: Lines | None = None
    """QOS that may use it; without them, all."""
    groups: Annotated[tuple[NodeGroupTable, ...], Field(strict=False)] = ()
    """Its kinds of nodes, where they are not all alike."""

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
    """`[qos.NAME]`: limits of one job, and of one person's jobs."""

    max_time: Duration | None = None
    """The longest that one job may take."""
    max_nodes: CountOrZero | None = None
    """The most nodes of one job."""
    max_cpus: CountOrZero | None = None
    """The most CPUs of one job."""
    max_gpus: CountOrZero | None = None
    """The most GPUs of one job."""
    max_submit: CountOrZero | None = None
    """The most jobs of one person that wait or run."""
    max_jobs: CountOrZero | None = None
    """The most jobs of one person that run."""
    over_partition: bool = False
    """Whether its `max_time` goes before the partition's."""


class Account(Document):
    """`[accounts.NAME]`: what this person may use of an account; limits as in `[qos.NAME]`, which go before these."""

    qos: Lines = ()
    """QOS that this person may use with it."""
    default_qos: str | None = None
    """The QOS of jobs that name none."""
    partitions: Lines | None = None
    """Partitions that it may be used in; without them, all."""
    default: bool = False
    """Whether it is the account of jobs that name none."""
    max_time: Duration | None = None
    """The longest that one job may take, where the QOS does not say."""
    max_nodes: CountOrZero | None = None
    """The most nodes of one job, where the QOS does not say."""
    max_cpus: CountOrZero | None = None
    """The most CPUs of one job, where the QOS does not say."""
    max_gpus: CountOrZero | None = None
    """The most GPUs of one job, where the QOS does not say."""
    max_submit: CountOrZero | None = None
    """The most jobs of one person that wait or run, where the QOS does not say."""
    max_jobs: CountOrZero | None = None
    """The most jobs of one person that run, where the QOS does not say."""


class GpuModel(Document):
    """`[gpu.MODEL]`: what one GPU can do."""

    memory: Size
    """Memory of one GPU."""
    capability: Annotated[float, Field(gt=0)] | None = None
    """Its compute capability."""
    tflops_bf16: Annotated[float, Field(gt=0)] | None = None
    """Its dense peak in bf16, in TFLOP/s; MFU is over this."""
    bandwidth: Size | None = None
    """What its memory moves, per second."""
    power: Annotated[float, Field(gt=0)] | None = None
    """Its power limit, in W."""


class StorageTier(Document):
    """`[storage.NAME]`: a place for data."""

    path: str
    """Where it is mounted; variables are filled in."""
    kind: Literal["memory", "node", "shared"] = "shared"
    """Whether all nodes share it, or each node has its own: on disk (`node`) or in `memory`."""
    size: Size | None = None
    """How much it holds."""
    bandwidth: Size | None = None
    """What all nodes together get of it, per second."""
    node_bandwidth: Size | None = None
    """What one node gets of it, per second."""
    opens_per_s: Annotated[float, Field(gt=0)] | None = None
    """How many files one node can open there per second."""
    quota_files: Count | None = None
    """The most files of one person."""
    quota: Size | None = None
    """The most bytes of one person."""
    purge: Duration | None = None
    """The age at which files are removed."""


class JobClass(Document):
    """`[classes.NAME]`: a length of job that the site favours."""

    max_time: Duration
    """The longest job of the class."""
    partition: str | None = None
    """The partition of its jobs."""
    qos: str | None = None
    """The QOS of its jobs."""
    attributes: Attributes = Field(default_factory=dict)
    """Attributes of its jobs on HTCondor, such as `GPUJobLength = "short"`."""


class VettingSite(Document):
    """`[vetting]`: what holds for every vetting on the cluster."""

    history: str | None = None
    """The folder of results, for protocols with `history: site`."""
    collector: str | None = None
    """The URL of a collector that takes results instead."""
    token_file: str | None = None
    """The file with the collector's token."""
    checks: Lines | None = None
    """The only folders that classes of checks may come from; without them, the protocol's own."""
    rules: Lines = ()
    """The site's own rules, files or folders, which are tried before those of Cordée."""
    baseline: str | None = None
    """The file of what the fleet reaches, for comparisons in small jobs."""
    users: Literal["name", "hash", "none"] = "name"
    """How the history keeps who ran a job."""
    environments: str | None = None
    """The folder of what `cordee vet prepare` makes; without it, the person's cache."""
    offenders: OffenderPolicy = OffenderPolicy.model_construct()
    """When `cordee nodes act` drains a node, and when it comes back."""
    actions: SiteActions = SiteActions.model_construct()
    """The site's own commands for that."""


class ScanSite(Document):
    """`[scan]`: what jobs are looked at for on the cluster."""

    policy: Literal["block", "warn"] | None = None
    """The least that is done about poisoned files; no job and no person can ask for less."""
    allow: Lines = ()
    """Names that pickles may look up on the cluster, as `module.name` or `module.*`."""
    packages: str | None = None
    """A file of names of packages that the site knows, one a line, beside those that are widely used."""
    internal: Lines = ()
    """Names of packages that only the site's own index has, as `centre-*`."""
    advisories: str | None = None
    """A snapshot of OSV's advisories: a zip such as PyPI's `all.zip`, or a folder of such."""
    gpu_driver: str | None = None
    """The version of the GPUs' driver on the nodes: a build for a newer CUDA is told before a job is submitted."""


class RulesSite(Document):
    """`[rules]`: what operators want to be told of every run on the cluster."""

    files: Lines = ()
    """Files of rules about runs, or folders of them, which `cordee rules check` has tried."""


class ImageStage(Document):
    """`[environment.stages.NAME]`: a store of the site's that images are taken to by `cordee env promote`."""

    store: str
    """The folder of its images."""
    after: str = ""
    """The stage that an image must be in already."""
    require: tuple[Literal["scanned", "signed"], ...] = Field(default=(), strict=False)
    """What an image must be: `scanned` without a finding, `signed` by one of the keys."""
    keys: str = ""
    """The keys that count, as a file of allowed signers (ssh-keygen(1))."""
    quota: Size | None = None
    """How much the store may hold."""


class EnvironmentSite(Document):
    """`[environment]`: container environments on the cluster."""

    engine: Literal["namespace", "podman", "apptainer", "step"] | None = None
    """What runs containers; without it, the first that the machine can run."""
    search_path: Lines = ()
    """The site's folders of EDFs, which come after the person's own."""
    store: str | None = None
    """The folder of images, where `EDF_IMAGESTORE` and `SCRATCH` name none."""
    stages: dict[str, ImageStage] = Field(default_factory=dict)
    """Stages that images go through, by name."""
    step_option: str = "--environment={file}"
    """Options of srun by which the site enters an environment, for the engine `step`: `{file}` is the EDF, `{image}` its image."""


class HTCondorSite(Document):
    """`[htcondor]`: what holds for every job on an HTCondor pool."""

    requirements: str | None = None
    """What machines must be, as an expression of HTCondor."""
    attributes: Attributes = Field(default_factory=dict)
    """Attributes of every job, such as `WantGPULab = true`."""
    max_idle: int | None = Field(default=None, ge=1)
    """So many jobs of one run wait in the queue at most, 1,000 without it; HTCondor makes the others as these leave."""
    max_materialize: int | None = Field(default=None, ge=1)
    """So many jobs of one run are in the queue at most, those that run among them."""


class NetworkSite(Document):
    """`[network]`: how nodes are connected, where Slurm does not say."""

    file: str | None = None
    """A topology.conf, a topology.yaml, or what `scontrol show topology` or `ibnetdiscover` printed; goes before `[switches]`."""
    groups: dict[str, str] = Field(default_factory=dict)
    """The groups of a dragonfly: for each a list of names of switches."""


class TeamSpace(Document):
    """`[kubernetes.teams.NAMESPACE]`: a namespace that services of a team share, which `cordee service team` renders."""

    members: Lines = ()
    """Groups that see what is there, but no Secrets; without it the one called as the namespace."""
    deployers: Lines = ()
    """Groups that deploy and change services there, and read their Secrets."""
    project: str = ""
    """The project of Argo CD, and of the account; without it the namespace's name."""
    rancher: Annotated[str, Field(pattern=rf"^({RANCHER_PROJECT})?$")] = ""
    """The project of Rancher, CLUSTER:PROJECT."""
    pods: Count = 20
    """How many pods run at once."""
    cpus: Count
    """The cores that they ask for."""
    memory: Size
    """Their memory."""
    gpus: CountOrZero = 0
    """Their GPUs."""
    gpu_vendor: Literal["nvidia", "amd", "intel"] = "nvidia"
    """Whose GPUs."""
    storage: Size
    """The size of all volumes."""
    load_balancers: CountOrZero = 0
    """How many services have an address of their own, outside of the cluster."""


class KubernetesSite(Document):
    """`[kubernetes]`: the centre's Kubernetes, on which services are; options of a command go before it."""

    gateway: Annotated[str, Field(pattern=r"^([a-z0-9-]+/[a-z0-9-]+)?$")] = ""
    """The Gateway that publishes hosts, NAMESPACE/NAME; without it an Ingress does."""
    storage_class: str = ""
    """Of volumes whose blueprint names none; without it the cluster's default."""
    cilium: bool = False
    """Whether network policies are Cilium's."""
    load_balancer: str = ""
    """The class of load balancers; without it the cluster's default."""
    clients: Networks = ()
    """The networks that a load balancer lets in."""
    teams: dict[NamespaceName, TeamSpace] = Field(default_factory=dict)
    """Namespaces that services of a team share."""


class ClusterProfile(Document):
    """A whole cluster profile: what is known of a cluster; None: nobody knows."""

    name: Name = HERE
    """The name by which `--on` chooses the cluster."""
    scheduler: Scheduler = HERE
    """The back end that runs jobs there."""
    cores: Count | None = None
    """Cores of this machine, for `local`."""
    memory: Size | None = None
    """Memory of this machine, for `local`."""
    gpus: CountOrZero = 0
    """GPUs of this machine, for `local`."""
    python: str | None = None
    """The Python of the node side on compute nodes, at least 3.9; without it, the one that Cordée runs with."""
    runs: str | None = None
    """The folder of runs, where neither `--runs` nor CORDEE_RUNS names one."""
    network_interface: str | None = None
    """Where the supervisor listens and ranks meet."""
    network_trusted: bool = False
    """Whether nobody else can read what nodes and login nodes send each other."""
    requeue: Requeue = "requeue"
    """How a chain continues: the same job again, a new job, or not at all."""
    release_held: bool = True
    """Whether a job that Slurm holds by itself after a failed launch is released, once in a run."""
    slurm_cluster: str | None = None
    """Slurm's own name of the cluster; where another Slurm answers, jobs are refused."""
    slurm_version: str | None = None
    """The version of Slurm; found out."""
    answering: str | None = None
    """The name of the Slurm that answers here; found out."""
    nodes_elsewhere: bool | None = None
    """Whether it has nodes on other machines than this one; found out."""
    partitions: dict[str, PartitionTable] = Field(default_factory=dict)
    """Its partitions."""
    accounts: dict[str, Account] | None = None
    """Accounts that this person may use; without the table they are not checked."""
    qos: dict[str, Qos] | None = None
    """Its qualities of service; without the table they are not checked."""
    reservations: Lines | None = None
    """Its reservations; found out."""
    classes: dict[Name, JobClass] = Field(default_factory=dict)
    """Lengths of job that the site favours."""
    gpu_models: dict[str, GpuModel] = Field(default_factory=dict, alias="gpu")
    """What its GPUs can do, by model; goes before what Cordée knows."""
    storage: dict[Name, StorageTier] = Field(default_factory=dict)
    """Places for data, by name."""
    datasets: dict[Name, SharedDataset] = Field(default_factory=dict)
    """Data sets that the site keeps for all, by name."""
    switches: dict[str, str] = Field(default_factory=dict)
    """The nodes below each switch, where Slurm does not say."""
    htcondor: HTCondorSite = HTCondorSite.model_construct()
    """What holds for every job, where the scheduler is HTCondor."""
    network: NetworkSite = NetworkSite.model_construct()
    """How nodes are connected, where Slurm does not say."""
    vetting: VettingSite = VettingSite.model_construct()
    """What holds for every vetting on the cluster."""
    rules: RulesSite = RulesSite.model_construct()
    """What operators want to be told of every run on the cluster."""
    environment: EnvironmentSite = EnvironmentSite.model_construct()
    """Container environments on the cluster."""
    scan: ScanSite = ScanSite.model_construct()
    """Poisoned files and packages: what the site demands, and what it knows."""
    egress: EgressSite = EgressSite.model_construct()
    """Where jobs may send data."""
    fetch: FetchSite = FetchSite.model_construct()
    """From where data may be fetched."""
    misuse: MisuseSite = MisuseSite.model_construct()
    """Signs that jobs mine or crack."""
    kubernetes: KubernetesSite = KubernetesSite.model_construct()
    """The centre's Kubernetes, on which services are."""
    defaults: dict[str, Any] = Field(default_factory=dict)
    """Keys of the job document that are laid under every job."""

    def tier_at(self, place: str) -> tuple[str, StorageTier] | None:
        """Return the tier of its storage that a path lies on, with its name: the one with the longest path above it."""
        real, best = os.path.realpath(place), ""
        found = None
        for name, tier in self.storage.items():
            root = os.path.realpath(os.path.expandvars(os.path.expanduser(tier.path)))
            if len(root) > len(best) and (real == root or real.startswith(root.rstrip("/") + "/")):
                best, found = root, (name, tier)
        return found

    @property
    def node_places(self) -> tuple[str, ...]:
        """The paths of its storage that each node has for itself on a disk."""
        return tuple(tier.path for tier in self.storage.values() if tier.kind == "node")
