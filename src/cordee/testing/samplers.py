"""What every source of GPU metrics must do. A new source is one fixture and one subclass:

```python
class TestMySource(GpuSourceContract):
    @pytest.fixture
    def opener(self) -> Opener:
        return lambda wanted: MySource(wanted)
```
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from cordee.telemetry.node.catalogue import GPU, METRICS
from cordee.telemetry.node.samplers.gpu import GpuMetricSource

# Makes a source, not yet probed, for the wanted GPUs; None: all.
Opener = Callable[[Sequence[str] | None], GpuMetricSource]


class GpuSourceContract:
    """Tests that every `GpuMetricSource` passes; the fixture's world has at least two GPUs that answer.

    A subclass gives `opener`; one whose samples must lie apart overrides `pass_time`, which passes its shortest interval.
    """

    @pytest.fixture
    def opener(self) -> Opener:
        """Return what makes a source."""
        raise NotImplementedError

    def pass_time(self) -> None:
        """Let the source's shortest interval pass."""

    @pytest.fixture
    def source(self, opener: Opener) -> Iterator[GpuMetricSource]:
        """Return a source that has been probed."""
        source = opener(None)
        assert source.probe() is None
        yield source
        source.close()

    def test_metrics_are_the_catalogues_in_its_order(self, source: GpuMetricSource) -> None:
        names = [metric["name"] for metric in source.metrics()]
        assert names
        assert names == [metric.name for metric in GPU if metric.name in names]
        assert all(metric["unit"] == METRICS[metric["name"]].unit for metric in source.metrics())
        assert {metric["source"] for metric in source.metrics()} == {source.name}

    def test_a_sample_has_a_value_of_each_metric_of_each_device(self, source: GpuMetricSource) -> None:
        self.pass_time()
        values = source.sample()
        assert len(set(source.devices())) == len(source.devices()) >= 2
        assert len(values) == len(source.devices()) * len(source.metrics())
        assert all(isinstance(value, float) for value in values)

    def test_ratios_are_ratios_and_nothing_is_negative(self, source: GpuMetricSource) -> None:
        for _ in range(3):
            self.pass_time()
            for metric, value in zip(source.metrics() * len(source.devices()), source.sample(), strict=True):
                assert not value < 0, metric
                assert metric["unit"] != "ratio" or not value > 1, metric

    def test_what_is_missing_has_its_reason(self, source: GpuMetricSource) -> None:
        given = [metric["name"] for metric in source.metrics()]
        for _ in range(3):
            self.pass_time()
            values = source.sample()
            names = given * len(source.devices())
            absent = {name for name, value in zip(names, values, strict=True) if value != value}
            absent |= {metric.name for metric in GPU if metric.name not in given}
            assert set(source.missing) == absent
            assert all(source.missing.values())

    def test_rates_are_known_from_the_second_sample_on(self, source: GpuMetricSource) -> None:
        for _ in range(2):
            self.pass_time()
            values = source.sample()
        assert any(value == value for value in values)

    def test_facts_name_each_device(self, source: GpuMetricSource) -> None:
        source.sample()
        facts = source.facts()
        assert list(facts) == source.devices()
        assert all(about["model"] for about in facts.values())

    def test_only_what_is_wanted_is_measured(self, opener: Opener, source: GpuMetricSource) -> None:
        second = str(source.devices()[1])
        one = opener([second])
        assert one.probe() is None
        self.pass_time()
        assert one.devices() == [second]
        assert len(one.sample()) == len(one.metrics())
        one.close()

    def test_wanted_devices_that_are_not_there_are_refused_in_words(self, opener: Opener) -> None:
        reason = opener(["GPU-00000000-no-such"]).probe()
        assert reason is not None
        assert "GPU-00000000-no-such" in reason

    def test_it_can_be_closed_twice(self, source: GpuMetricSource) -> None:
        source.close()
        source.close()
