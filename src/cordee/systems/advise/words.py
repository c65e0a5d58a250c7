"""What programs say when they fail, and what it means: a table of patterns over the last lines of output."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from cordee.backends.reasons.clauses import note
from cordee.backends.reasons.situation import Situation
from cordee.core.findings import Finding
from cordee.machine.tasks.last_words import FROM_OUTSIDE

_MOST_EVIDENCE = 300


class OutputPattern(NamedTuple):
    """A pattern of output: `meaning` is a clause that can stand after "it failed because", filled with its groups."""

    rule: str
    pattern: re.Pattern[str]
    meaning: str
    next: str


def _saying(rule: str, pattern: str, meaning: str, next: str) -> OutputPattern:
    return OutputPattern(rule, re.compile(pattern, re.IGNORECASE), meaning, next)


# The first that matches is the cause: what explains other messages stands before them.
SAYINGS = (
    _saying(
        "gpu-hardware",
        r"uncorrectable ECC|NVRM: Xid|\bXid\b.*\d|GPU has fallen off the bus|CUDA_ERROR_ECC_UNCORRECTABLE|unspecified launch failure",
        "a GPU is broken or has lost its memory's contents",
        'leave the node out: [slurm] options = ["--exclude=NODE"], and tell the operators; [need] spare_nodes = 1 helps',
    ),
    _saying(
        "gpu-memory",
        r"CUDA out of memory|HIP out of memory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|cuda.?malloc.*out of memory|"
        r"RESOURCE_EXHAUSTED: (Out of memory|.*allocat)|OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED",
        "the memory of a GPU was full",
        "use a smaller batch, gradient accumulation or activation checkpointing in the script, or larger GPUs, as in"
        ' [need] gpu = "memory >= 80GB"',
    ),
    _saying(
        "shared-memory",
        r"insufficient shared memory|unable to (open|allocate|mmap).*shared memory|No space left on device.*/dev/shm|"
        r"bus error.*shm|/dev/shm.*No space",
        "the shared memory of the node (/dev/shm) was full",
        "use fewer workers of the data loader, or torch.multiprocessing.set_sharing_strategy('file_system')",
    ),
    _saying(
        "memory",
        r"oom.?kill event|oom_kill|Exceeded (job|step) memory limit|exceeded memory limit|MemoryError|std::bad_alloc|"
        r"Cannot allocate memory|can't allocate memory|DataLoader worker .* killed by signal: Killed|Out Of Memory",
        "it used more memory than its node gave it",
        "ask for more [need] memory, or use fewer workers of the data loader",
    ),
    _saying(
        "quota",
        r"Disk quota exceeded|EDQUOT|Errno 122",
        "your disk quota is used up",
        "remove old runs and checkpoints, or put [checkpoint] path on a file system with room; `quota -s` or the site's own"
        " command shows bytes and files",
    ),
    _saying(
        "disk-full",
        r"No space left on device|ENOSPC|Errno 28\b",
        "a disk was full",
        "make room, put [checkpoint] path where there is room, and set [vet] min_disk so that it is seen before the start",
    ),
    _saying(
        "read-only",
        r"Read-only file system|Errno 30\b",
        "it wrote to a file system that is read-only on the node",
        "write below CORDEE_RUN_DIR or on the shared file system; home folders are often read-only on compute nodes",
    ),
    _saying(
        "file-system",
        r"Stale file handle|Transport endpoint is not connected|Input/output error|Errno (5|107|116)\b|Remote I/O error",
        "a file system failed under it",
        "`cordee resume` once it works again; tell the operators when it comes back",
    ),
    _saying(
        "open-files",
        r"Too many open files|Errno 24\b",
        "it had too many files open",
        'add "ulimit -n 65536" to setup, or use fewer workers of the data loader',
    ),
    _saying(
        "collective-timeout",
        r"Watchdog caught collective operation timeout|NCCL (operation )?time(d )?.?out|Timed out waiting \d+ms for (recv|send)|"
        r"collective.*timed out|ProcessGroup\w+.*time.?out",
        "the ranks waited for each other in a collective until its time was up: one was slow, stuck or took another way",
        "look for the rank that is behind with `cordee logs --rank N`; let all ranks take the same branches and give slow"
        " phases (saving, evaluation) a longer time-out in init_process_group",
    ),
    _saying(
        "address-in-use",
        r"Address already in use|EADDRINUSE|Errno 98\b",
        "a port that the script asks for was taken",
        "do not fix a port in the script or in run: take MASTER_ADDR and MASTER_PORT from the environment",
    ),
    _saying(
        "no-network",
        r"Temporary failure in name resolution|Name or service not known|Network is unreachable|couldn't connect to "
        r"'?https?://|Max retries exceeded with url|No route to host|ConnectionError.*https?://|offline mode",
        "it tried to reach the network and compute nodes often have no way out",
        'download models and data before the job starts, on a login node; then env = { HF_HUB_OFFLINE = "1" } for Hugging Face',
    ),
    _saying(
        "nccl-without-gpu",
        r"doesn't have NCCL built in|ProcessGroupNCCL is only supported with GPUs",
        "it asked for the backend nccl, which needs GPUs",
        'choose the backend by what there is: init_process_group("nccl" if torch.cuda.is_available() else "gloo")',
    ),
    _saying(
        "nccl",
        r"ncclSystemError|ncclInternalError|ncclUnhandledCudaError|ncclRemoteError|NCCL error|NCCL WARN",
        "NCCL could not talk between GPUs or nodes",
        'set env = { NCCL_DEBUG = "INFO" } and run again; name the fast network with network_interface in the profile',
    ),
    _saying(
        "no-gpu",
        r"no CUDA-capable device|No CUDA GPUs are available|Found no NVIDIA driver|invalid device ordinal|"
        r"CUDA driver version is insufficient|Torch not compiled with CUDA|no HIP GPUs",
        "it found no GPU, or fewer than it wanted",
        "set [need] gpus_per_node to what it uses, and choose the device by LOCAL_RANK; a PyTorch without CUDA finds none",
    ),
    _saying(
        "gpu-architecture",
        r"no kernel image is available|is not compatible with the current PyTorch|Illegal instruction",
        "the program was built for another GPU or CPU",
        'use a build for these nodes, or ask for the right ones with [need] constraint or gpu = "capability >= 8.0"',
    ),
    _saying(
        "gpu-fault",
        r"device-side assert|illegal memory access|CUDA error|cudaError",
        "a kernel failed on the GPU",
        'set env = { CUDA_LAUNCH_BLOCKING = "1" } and run again to see where; an index out of range is the usual cause',
    ),
    _saying(
        "import",
        r"ModuleNotFoundError: No module named '?(?P<name>[\w.]+)'?",
        "Python has no module {name}",
        "install it into the environment that run uses, or add what brings it to setup; [vet] modules finds it early",
    ),
    _saying(
        "library",
        r"(?P<name>\S+\.so[\d.]*): (cannot open shared object file|undefined symbol|version .* not found)|"
        r"(version `?GLIBC\S* not found)|undefined symbol",
        "a library that it needs is missing or of another version",
        'load the modules that it was built with in setup, for example setup = ["module load cuda"]',
    ),
    _saying(
        "import",
        r"ImportError: (?P<name>.*)",
        "an import failed: {name}",
        "mend the environment that run uses; setup lines run before the ranks on every node",
    ),
    _saying(
        "module-unknown",
        r"following module\(s\) are unknown|Unable to locate a modulefile",
        "a module of setup does not exist on the node",
        "see `module avail` on the cluster and mend setup",
    ),
    _saying(
        "command",
        r"(?P<name>[^\s:]+): command not found|not found on PATH|No such file or directory: '(?P<name2>[^/']+)'$",
        "a command was not found: {name}",
        "give its full path in run or setup, or add what brings it to setup; [vet] commands finds it early",
    ),
    _saying(
        "permission",
        r"Permission denied(: '(?P<name>[^']*)')?|PermissionError|Errno 13\b|EACCES|Operation not permitted",
        "it was not allowed to read, write or execute something",
        "see the path in the last lines: it must be yours and reachable from the compute nodes",
    ),
    _saying(
        "missing-file",
        r"FileNotFoundError.*?'(?P<name>[^']+)'|No such file or directory: '?(?P<name2>[^\s']+)",
        "a file was not there: {name}",
        "is it on a file system that the compute nodes see? Relative paths are below the job's folder",
    ),
    _saying(
        "checkpoint-mismatch",
        r"Missing key\(s\) in state_dict|Unexpected key\(s\) in state_dict|size mismatch for |PytorchStreamReader failed|"
        r"invalid load key|Checkpoint.*(corrupt|incomplete)",
        "the checkpoint that it loaded is damaged or of another model",
        "move that checkpoint away so that an older one is used, or choose another [checkpoint] path",
    ),
    _saying(
        "no-world",
        r"environment variable (RANK|WORLD_SIZE|LOCAL_RANK) expected, but not set|"
        r"KeyError: '(RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE)'",
        "the script wants a distributed world, and a job of one rank without GPUs has none",
        "set [need] ranks_per_node = 1, or more; one rank then gets RANK and WORLD_SIZE, too",
    ),
    _saying(
        "rendezvous",
        r"client socket has (failed|timed out)|DistStoreError|DistNetworkError|TCPStore|rendezvous|"
        r"(Connection|connect\w*).*(refused|timed out)|Connection reset by peer|Connection closed by peer",
        "ranks could not reach each other",
        "take MASTER_ADDR and MASTER_PORT from the environment; name the network between nodes with network_interface in"
        " the profile",
    ),
    _saying(
        "arguments",
        r"error: (unrecognized arguments|the following arguments are required|argument .*)",
        "the script does not take the arguments of run",
        "mend run, or the resume arguments of [checkpoint]",
    ),
    _saying(
        "syntax",
        r"SyntaxError|IndentationError",
        "the script is no valid Python here",
        "mend it; is it the right Python?",
    ),
    _saying(
        "exception",
        r"^(?P<name>[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit|Warning)): ?(?P<text>.*)",
        "the script raised {name}: {text}",
        "see the traceback with `cordee logs`",
    ),
)
_RAN_OUT = ("gpu-hardware", "gpu-memory", "shared-memory", "memory", "quota", "disk-full", "file-system", "open-files")
_RESOURCES = tuple(saying for saying in SAYINGS if saying.rule in _RAN_OUT)
_OTHERS = tuple(saying for saying in SAYINGS if saying.rule not in _RAN_OUT)
_TOLD_ALWAYS = re.compile(r"wandb: (?!ERROR)")  # of its server, its mode and its pages, however the training ends
_TRACE = re.compile(r"^\s*(File \"|Traceback|raise |\^|~)")


def causes(lines: Iterable[str], sayings: Iterable[OutputPattern] = SAYINGS) -> Iterator[Finding]:
    """Yield what the lines say, the strongest first; each rule once."""
    kept = [line for line in lines if line.strip() and not _TRACE.match(line) and not _TOLD_ALWAYS.match(line)]
    said: set[str] = set()
    for saying in sayings:
        if saying.rule in said:
            continue
        for line in reversed(kept):
            match = saying.pattern.search(line)
            if match is not None:
                said.add(saying.rule)
                yield _finding(saying, match, line)
                break


def _finding(saying: OutputPattern, match: re.Match[str], line: str) -> Finding:
    groups = {name: value for name, value in match.groupdict().items() if value}
    groups.setdefault("name", groups.get("name2", "see the last lines"))
    groups.setdefault("text", "")
    text = re.sub(r"\{(\w+)\}", lambda found: groups.get(found.group(1), "")[:200], saying.meaning).rstrip(": ")
    said_so = line.strip()[:_MOST_EVIDENCE]
    return note(saying.rule, text, "error", next=saying.next, given=None if said_so in text else said_so, line=said_so)


def said(situation: Situation) -> Iterator[Finding]:
    """Say what the failing rank's message, its last lines and the batch script's output mean: one cause.

    Resources that ran out count wherever they are named; other words count in the message first, since earlier lines
    are often harmless. Where a signal from outside ended it, what the program printed of other things is not the cause.
    """
    killed = situation.state.failures[-1:] and situation.state.failures[-1].get("signal") in FROM_OUTSIDE
    others = () if killed else _OTHERS
    message = [str(failure.get("message") or "") for failure in situation.state.failures[-1:]]
    output, batch = situation.output, situation.scheduler.batch_output
    turns = (
        (message, _RESOURCES),
        (output, _RESOURCES),
        (batch, _RESOURCES),
        (message, others),
        (output, others),
        (batch, _OTHERS),
        (situation.own_output, SAYINGS),
        ([situation.state.text], SAYINGS),
    )
    for lines, sayings in turns:
        found = next(causes(lines, sayings), None)
        if found is not None:
            yield found
            return
