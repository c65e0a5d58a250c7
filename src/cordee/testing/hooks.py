"""The contract of hooks: what every one of `com.hooks.NAME` must do, ours and yours.

```python
class TestMyHook(HookContract):
    @pytest.fixture
    def case(self, tmp_path):
        return HookCase(MyHook(), {"enabled": "true"}, fits=made_tree(tmp_path), lacks={"CORDEE_HOST_ROOT": "/nowhere"})
```
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from cordee.systems.environments.node.document import ContainerMount, ContainerRoot, Environment, environment_of
from cordee.systems.environments.node.hooks._base import Hook


@dataclass(frozen=True)
class HookCase:
    """A hook and what the contract needs to try it.

    Attributes:
        hook: the hook.
        settings: its annotations, by the last part of their names.
        fits: variables of a machine that has all it needs.
        lacks: of one that lacks something; None: there is nothing that it needs.
    """

    hook: Hook
    settings: dict[str, str]
    fits: dict[str, str] = field(default_factory=dict)
    lacks: dict[str, str] | None = None

    def environment(self, **fields: Any) -> Environment:
        """Return an environment of an image."""
        return replace(Environment("test", "/image", root=ContainerRoot("folder", "/image")), **fields)

    def applied(self, environment: Environment) -> Environment:
        """Return it as the hook leaves it on the machine that has all."""
        return self.hook.apply(environment, self.settings, self.fits)


class HookContract:
    """What every hook must do; a subclass has a fixture `case` that returns a `HookCase`."""

    @pytest.fixture
    def case(self) -> HookCase:
        raise NotImplementedError

    def test_what_a_machine_lacks_is_named_with_what_to_do(self, case: HookCase) -> None:
        assert case.hook.missing(case.settings, case.fits) == []
        if case.lacks is not None:
            found = case.hook.missing(case.settings, case.lacks)
            assert found
            assert all(each.capability and each.text and each.next for each in found)

    def test_what_is_looked_at_twice_is_the_same(self, case: HookCase) -> None:
        assert case.applied(case.environment()) == case.applied(case.environment())

    def test_what_the_edf_says_itself_stays(self, case: HookCase) -> None:
        added = case.applied(case.environment())
        own = dict.fromkeys(added.env, "mine")
        mounts = tuple(ContainerMount("/mine", mount.target) for mount in added.mounts)
        again = case.applied(case.environment(env=own, mounts=mounts, startup=("mine",)))
        assert again.env == own
        assert set(mounts) <= set(again.mounts)
        assert {mount.target for mount in again.mounts if mount not in mounts}.isdisjoint(m.target for m in mounts)
        assert again.startup[-1] == "mine"

    def test_the_image_and_the_folders_are_left_alone(self, case: HookCase) -> None:
        before = case.environment(workdir="/w", writable=False, devices=("/dev/fuse",))
        after = case.applied(before)
        for name in ("image", "root", "workdir", "writable", "entrypoint", "devices", "annotations", "overlay"):
            assert getattr(after, name) == getattr(before, name)

    def test_what_it_adds_travels_with_a_job(self, case: HookCase) -> None:
        after = case.applied(case.environment())
        assert environment_of(after.document()) == after
