"""What the rules about packages mean."""

from __future__ import annotations

from cordee.systems.scan.rule_words import RuleWords

_LOCK = "lock with hashes: `uv lock`, `pip-compile --generate-hashes`, or `conda list --explicit --sha256`"

PACKAGE_RULES: dict[str, RuleWords] = {
    "package-extra-index": RuleWords(
        "Packages are taken from several indexes at once.",
        "The highest version wins, whoever offers it. In December 2022 PyTorch's own nightly index lost `torchtriton` to somebody who had registered that name on PyPI.",
        "name one index that mirrors the others, or pin by hashes, or with uv bind a package to its index ([tool.uv.sources])",
    ),
    "package-confusion": RuleWords(
        "A package of this site only is looked for in public indexes, too.",
        "Whoever registers its name there with a high version has everybody install theirs: dependency confusion, shown in 2021 at 35 large companies.",
        "take it from the site's index alone (`--index-url`), or pin it by a hash",
    ),
    "package-index-insecure": RuleWords(
        "Packages come over a connection that is not encrypted.",
        "Anybody on the way, such as on a shared network, can put in others.",
        "use https, or pin by hashes",
    ),
    "package-trusted-host": RuleWords(
        "The certificate of an index is not looked at.",
        "So it may be anybody's.",
        "have the site's certificate installed (`--cert`, SSL_CERT_FILE), and take the option out",
    ),
    "package-typosquat": RuleWords(
        "The name of a package is nearly that of a widely used one.",
        "Packages are registered under such names for those who mistype: `torchvison`, `reqeusts`.",
        "correct the name; if it is meant, put it into the site's list ([scan] packages)",
    ),
    "package-direct-url": RuleWords(
        "A package comes from an address that names no fixed content.",
        "A branch or a file can be another tomorrow, and nobody would see.",
        "name a commit (`@` and 40 digits) or a hash (`#sha256=...`)",
    ),
    "package-no-hash": RuleWords(
        "No hash says which file of a package is meant.",
        "A version can be uploaded again elsewhere, an index can be taken over; a hash cannot.",
        _LOCK,
    ),
    "package-unreadable": RuleWords(
        "A line or file about packages cannot be read.", "Nobody can say what it asks for.", "correct it"
    ),
    "package-advisory": RuleWords(
        "A vulnerability of this version of a package is known.",
        "Not each can be used in a training; those in what reads foreign data (images, archives, models, web) can.",
        "take a version that is fixed",
    ),
    "package-malicious": RuleWords(
        "The package is known to be an attack.",
        "It has most likely run already, when it was installed or imported.",
        "remove the environment, and change all keys that its user has: tokens, SSH keys, passwords",
    ),
    "package-pth": RuleWords(
        "A `.pth` file has code run at each start of Python.",
        "Nothing has to be imported for it: `litellm_init.pth` took keys from machines in March 2026 in this way.",
        "look at the line; if it is not meant, remove the package that brought it",
    ),
    "package-sitecustomize": RuleWords(
        "`sitecustomize.py` is run at each start of Python.",
        "It is a good place to hide.",
        "look at it; if nobody knows it, remove it",
    ),
    "package-plugin": RuleWords(
        "A package that is in no list is imported whenever a well-known library is.",
        "So its code runs in each program that uses the library.",
        "look at it, or put it into the site's list ([scan] packages)",
    ),
    "package-taken-command": RuleWords(
        "A package brings a program with the name of one of the system's.",
        "In an active environment it is run in place of that, also by `srun` and in scripts.",
        "look at the program; if it is not meant, remove the package that brought it",
    ),
    "package-torch-cpu": RuleWords(
        "The PyTorch of this environment was built without GPUs, and the job asks for some.",
        "The job would wait for GPUs, and train on its cores.",
        "install a build for CUDA or ROCm: see the index that PyTorch names for yours",
    ),
    "package-torch-driver": RuleWords(
        "PyTorch was built for a newer CUDA than the driver of the nodes can run.",
        "`torch.cuda.is_available()` says no, and the job trains on its cores or ends.",
        "install a build for an older CUDA, or ask the site for a newer driver",
    ),
    "advisories-broken": RuleWords(
        "The snapshot of advisories cannot be read as a whole.",
        "What is not in it is not told.",
        "get it again; it is a zip of JSON records in OSV's form",
    ),
    "advisories-future": RuleWords(
        "The snapshot of advisories is newer than this machine's clock.",
        "One of both is wrong, and so is its age.",
        "look at `date`; get the snapshot again",
    ),
    "advisories-old": RuleWords(
        "The snapshot of advisories is more than a month old.",
        "What became known since is not told.",
        "get a newer one",
    ),
}
