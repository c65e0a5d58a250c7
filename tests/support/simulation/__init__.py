"""A run that is simulated: the real supervisor and the real agents in one process, in virtual time, with faults by chance.

```python
from support.simulation import case_of, shrunk, simulate

result = simulate(case_of(seed=7))
assert result.violations == []
```

What is real: `Supervisor` and `Agent` with all that they are made of, the journal, the block log, ownership, the rendezvous
file. What is not: time, the network below messages, processes, the allocation, what ranks do.
"""

from __future__ import annotations

from support.simulation.faults import KINDS, VirtualFault
from support.simulation.seeds import (
    Campaign,
    Case,
    SimulationResult,
    campaign,
    case_of,
    resumed,
    shrunk,
    simulate,
)
from support.simulation.surroundings import RunScript

__all__ = [
    "KINDS",
    "Campaign",
    "Case",
    "VirtualFault",
    "SimulationResult",
    "RunScript",
    "campaign",
    "case_of",
    "resumed",
    "shrunk",
    "simulate",
]
