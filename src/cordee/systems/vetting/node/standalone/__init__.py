"""`cordee vet` in any script: the tasks of a Slurm step, or one process, vet their nodes together.

The first task of the first node conducts. It writes where it listens into a file that only this user can read, in a folder
that all nodes share; the others find it there and do what it asks. They need the node side alone. When it dies the first
task of the second node takes its place, then that of the third.
"""

from __future__ import annotations

from cordee.systems.vetting.node.standalone.settings import VetOptions

__all__ = ["VetOptions", "take_part"]


def take_part(options: VetOptions) -> int:
    """Take part in the vetting that the environment tells of and return the exit code, the same on every task.

    The task that conducts writes vet.json, exclude.txt, nodes.txt and vet.env, and prints the table or the document.

    Returns:
        0 continue, 3 continue without some, 4 abort; 2 or 5 when the task that conducts failed so, 5 also when none was
        found; 128 + n when this task was told to end by signal n.

    Raises:
        CordeeError: this task conducts and cannot: the protocol is wrong, or the folder cannot be written.
    """
    import asyncio

    from cordee.runs.folder import say
    from cordee.systems.vetting.node.standalone.membership import VettingRoster
    from cordee.systems.vetting.node.standalone.task import VettingPart

    world = VettingRoster.here()
    if world.remark:
        say(f"cordee vet: {world.remark}")

    async def take() -> VettingPart:
        part = VettingPart(world, options)
        part.code = await part.run()
        return part

    part = asyncio.run(take())
    if part.document is not None:
        from cordee.systems.vetting.node.standalone.output import show

        show(part.document, options)
    return part.code
