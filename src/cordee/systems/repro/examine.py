"""What `[repro]` sets for every rank, and what it costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cordee.core.findings import Finding
from cordee.job.document import ReproTable
from cordee.job.plan.examination import Contribution, Examination, ShownPaths

_COST = (
    "deterministic: what has only kernels that are not deterministic raises an error, cuDNN does not look for its fastest kernel, "
    "and float32 products on GPUs are slower without TF32"
)
_NO_SEED = "[repro] has no seed: weights and the order of data are drawn anew by each run"


class ReproExamination(Examination):
    """Variables for every rank; libraries are set by `cordee.client.adapters.repro` right after their import."""

    def contribute(self, shown: Sequence[ShownPaths]) -> Contribution:
        table = self.loaded.job.repro or ReproTable()
        wanted: dict[str, str] = {}
        if table.deterministic:
            wanted.update(CORDEE_DETERMINISTIC="1", CUBLAS_WORKSPACE_CONFIG=":4096:8")
        if table.seed is not None:
            wanted.update(CORDEE_SEED=str(table.seed), PYTHONHASHSEED=str(table.seed))
        own = self.loaded.job.env
        env = {name: value for name, value in wanted.items() if name not in own}
        findings = list(self._findings(table, [name for name in wanted if name in own and own[name] != wanted[name]]))
        return Contribution(env=env, findings=findings)

    def _findings(self, table: ReproTable, kept: Sequence[str]) -> Iterator[Finding]:
        file, line = self.loaded.place("repro")
        if table.deterministic:
            yield Finding(_COST, "info", "repro-cost", file=file, line=line, next="compare the step times of two runs")
        if table.seed is None:
            yield Finding(_NO_SEED, "warn", "repro-no-seed", file=file, line=line, next="set seed = 1")
        for name in kept:
            file, line = self.loaded.place("env", name)
            text = f"{name} of [env] is used, and not what [repro] would set"
            yield Finding(text, "warn", "repro-env", file=file, line=line, next="remove it from one of them")
