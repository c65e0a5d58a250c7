"""Build: images from recipes, locked and reproducible, with what is in them."""

from __future__ import annotations

from cordee.core.registry import System

SYSTEM = System(
    name="builds",
    offers={
        "stale-image": "cordee.systems.builds.offered:stale_image",
        "pushed-image": "cordee.systems.builds.offered:pushed_image",
    },
    subcommands={
        "env build": ("cordee.systems.builds.cli.build", "Make the image of an EDF's recipe, from its lock."),
        "env lock": ("cordee.systems.builds.cli.lock", "Write down every version, file and hash of a recipe."),
        "env export": ("cordee.systems.builds.cli.export", "Write an EDF that every reader of the format takes."),
        "env push": ("cordee.systems.builds.cli.push", "Copy an image that was built to a registry."),
        "env promote": (
            "cordee.systems.builds.cli.promote",
            "Take an image to a site's next stage, if its rules allow.",
        ),
        "env sign": ("cordee.systems.builds.cli.sign", "Sign an image by its digest, with a key of OpenSSH."),
    },
)
