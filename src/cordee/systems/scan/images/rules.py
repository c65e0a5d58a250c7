"""What the rules about images mean."""

from __future__ import annotations

from cordee.systems.scan.rule_words import RuleWords

IMAGE_RULES: dict[str, RuleWords] = {
    "image-setuid": RuleWords(
        "A program of the image runs with the rights of its owner, whoever starts it.",
        "In a container of one's own nobody gains by it; where an image is unpacked or run as root, a hole in such a program is a way to become root.",
        "build without it (`chmod u-s`), or with `cordee env pull`, which clears the bit",
    ),
    "image-setuid-odd": RuleWords(
        "A file that no distribution ships so runs with the rights of its owner.",
        "A shell or an interpreter with that bit is a back door: whoever finds it is root at once.",
        "do not use the image; ask its author what the file is for",
    ),
    "image-capability": RuleWords(
        "A program of the image has capabilities of the kernel.",
        "They are parts of what root may do, such as reading every file.",
        "take them off (`setcap -r`) where the image is built",
    ),
    "image-root": RuleWords(
        "The image runs as root unless somebody says otherwise.",
        "Engines that keep root as root give away the machine with the first hole.",
        "add `USER` to the Containerfile; with Cordée's engines you are yourself inside in any case",
    ),
    "image-model-unknown": RuleWords(
        "A file of the image may be a model, and could not be looked at.",
        "What nobody has looked at may be poisoned.",
        "copy it out of the image, and scan it by itself",
    ),
    "image-secret-layer": RuleWords(
        "A key stands in a layer of the image.",
        "What a later layer deletes is still in the layer below: whoever has the image has the key.",
        "have the service make a new key, and build with `RUN --mount=type=secret`",
    ),
    "image-secret-config": RuleWords(
        "A key stands in the configuration of the image: in a variable, a label or the history of its build.",
        "Values of ARG and ENV are kept for ever, and are shown by every registry.",
        "have the service make a new key, and build with `RUN --mount=type=secret`",
    ),
    "image-old": RuleWords(
        "The image is more than a year old.",
        "Holes that became known since are not closed in it.",
        "build or pull it again",
    ),
    "image-date": RuleWords(
        "The image says that it is of a time to come.",
        "The clock of its builder was wrong, or somebody wants it to look new.",
        "ask its author",
    ),
    "image-unreadable": RuleWords(
        "A part of the image could not be read.",
        "So nobody can say what it holds.",
        "get the image again; pack it with zstd, gzip or xz where its compression is not known here",
    ),
    "image-too-much": RuleWords(
        "The image is more than could be looked at.",
        "Images with millions of entries, or files without end, are made to tire whoever looks.",
        "ask its author, or build it yourself",
    ),
    "image-hostile": RuleWords(
        "An entry of the image leads out of it.",
        "Unpacked by a careless program it replaces a file of yours.",
        "do not use the image",
    ),
}
