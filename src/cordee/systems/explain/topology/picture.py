"""The picture: the job's nodes in their switches, and these in their groups."""

from __future__ import annotations

from collections.abc import Mapping

from cordee.core.draw.boxes import Box, Item, PictureCell, boxes
from cordee.core.network import Network
from cordee.systems.explain.topology.colours import Colours
from cordee.systems.explain.topology.figures import Figures
from cordee.systems.explain.topology.job import PlacedJob

# Nodes of others are drawn beside the job's as long as they do not drown them.
_MOST_OTHERS = 2000
_OTHERS_PER_NODE = 8


def picture(whole: PlacedJob, part: PlacedJob, network: Network | None, found: Figures, colours: Colours) -> str:
    """Return the picture as SVG.

    Args:
        whole: the job.
        part: what a filter leaves of it, else the same; the rest is faint.
        network: None: the nodes stand in one box.
        found: the figures of the whole job.
        colours: of the cells.
    """
    items = _items(whole, part, colours)
    content = _boxes(network, found.leaf_of, items, len(network.levels) - 1 if network is not None else 0)
    homeless = [items[node] for node in whole.nodes if node not in found.leaf_of]
    if homeless:
        label = "in no known switch" if network is not None else "how the nodes are connected is not known"
        content.append(Box(f"{label}: {len(homeless)}", homeless))
    many = f"{len(whole.nodes)} nodes"
    spans = ", ".join(
        f"{span.spanned} of {span.there} {span.level}{'es' if span.level == 'switch' else 's'}" for span in found.spans
    )
    filtered = f"; {len(part.nodes)} nodes shown in full" if part is not whole else ""
    title = f"{whole.name}: {many}{' in ' + spans if spans else ''}{filtered}"
    said = f"{many}, coloured by {colours.legend.title}; the table has the shares of neighbours that cross"
    return boxes(title, said, content, colours.legend)


def _items(whole: PlacedJob, part: PlacedJob, colours: Colours) -> dict[str, Item]:
    by_node: dict[str, list[int]] = {}
    for rank, node in sorted(whole.ranks.items()):
        by_node.setdefault(node, []).append(rank)
    inside = set(part.nodes)
    items = {}
    for node in whole.nodes:
        ranks = by_node.get(node, [])
        if ranks:
            told = [colours.of(node, rank) for rank in ranks]
            cells = [PictureCell(colour, rank not in part.ranks) for (colour, _), rank in zip(told, ranks, strict=True)]
        else:
            told = [colours.of(node)]
            cells = [PictureCell(told[0][0], node not in inside)]
        words = "; ".join(dict.fromkeys(text for _, text in told if text))
        of_ranks = f"ranks {ranks[0]}-{ranks[-1]}" if len(ranks) > 1 else f"rank {ranks[0]}" if ranks else ""
        items[node] = Item(node, ": ".join(filter(None, (node, of_ranks, words))), cells)
    return items


def _boxes(network: Network | None, leaf_of: Mapping[str, str], items: Mapping[str, Item], level: int) -> list[Box]:
    if network is None or not leaf_of:
        return []
    held: dict[str, set[str]] = {}
    for node, leaf in leaf_of.items():
        held.setdefault(leaf, set()).add(node)
    found: dict[str, Box] = {}
    others = sum(len(network.leaves[leaf]) for leaf in held) - len(leaf_of)
    with_others = others <= min(_MOST_OTHERS, _OTHERS_PER_NODE * len(leaf_of) + 64)
    for leaf, names in network.leaves.items():
        if leaf in held:
            # The job may write a node's name with its domain.
            known = {node.partition(".")[0] if node not in names else node: node for node in held[leaf]}
            shown = [
                items[known[name]] if name in known else Item(name) for name in names if with_others or name in known
            ]
            found[leaf] = Box(f"{leaf} {len(held[leaf])} of {len(names)}", shown)
    for upper in range(1, level + 1):
        of, below = network.levels[upper].of, network.levels[upper - 1].of
        inside: dict[str, dict[str, Box]] = {}
        for leaf in held:
            inside.setdefault(of[leaf], {})[below[leaf]] = found[below[leaf]]
        found = {name: Box(name, boxes=list(each.values())) for name, each in inside.items()}
    return list(found.values())
