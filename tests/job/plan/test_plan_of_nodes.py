"""The part of the plan that nodes read: what the document side writes is what they understand."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from cordee.core.errors import RunFolderError
from cordee.job.plan import model
from cordee.runs import plan as of_nodes
from cordee.runs.folder import RunFolder
from support.made.runs import made_plan

PARTS = {
    of_nodes.RunPlan: model.Plan,
    of_nodes.RunStep: model.Step,
    of_nodes.RunTasks: model.Tasks,
    of_nodes.RunRequest: model.Request,
    of_nodes.RunScheduler: model.Scheduler,
    of_nodes.Checkpoints: model.CheckpointPolicy,
    of_nodes.RunVet: model.VetPolicy,
    of_nodes.RunRestart: model.RestartPolicy,
    of_nodes.RunBegin: model.BeginFrom,
    of_nodes.RunSegment: model.SegmentPolicy,
    of_nodes.RunEnvironment: model.EnvironmentPlan,
    of_nodes.RunTimeouts: model.Timeouts,
    of_nodes.RunSampling: model.Sampling,
    of_nodes.RunMetrics: model.Metrics,
}


@pytest.fixture
def document(tmp_path):
    folder = RunFolder.create(tmp_path / "runs", "a-run")
    layout = SimpleNamespace(nodes=2, per_node=4, sizes={"tp": 1, "pp": 1})
    return json.loads(json.dumps(made_plan(folder, "made", SimpleNamespace(layout=layout)).document()))


@pytest.mark.parametrize(("part", "whole"), PARTS.items(), ids=[part.__name__ for part in PARTS])
def test_each_field_that_nodes_read_is_one_of_the_plan(part, whole):
    assert set(part._fields) <= set(whole.model_fields)


@pytest.mark.parametrize(("part", "whole"), PARTS.items(), ids=[part.__name__ for part in PARTS])
def test_what_the_plan_may_leave_out_means_the_same_to_nodes(part, whole):
    for name, default in part._field_defaults.items():
        field = whole.model_fields[name]
        if not field.is_required() and not isinstance(default, tuple):
            assert default == field.get_default(call_default_factory=True)


def test_nodes_read_each_field_of_the_plan_with_the_value_that_was_written(document):
    step = document["steps"][0]
    step["checkpoint"].update(begin={"given": "existing", "checkpoints": {"/c/step-1": 5}}, ignore={"step-0": 4})
    step["environment"] = {"engine": "podman", "document": {"root": "/"}, "files": [], "option": "--edf=x"}
    step["vet"]["protocol"] = {"name": "p"}
    document.update(backend_part="spool:BACKEND", parent="/runs/above", logs_keep_bytes=1 << 28)
    del document["schema"]
    whole = json.loads(json.dumps(model.Plan(**document).document()))

    def same(read, written):
        if hasattr(read, "_fields"):
            for name in read._fields:
                same(getattr(read, name), written[name])
        elif isinstance(read, tuple):
            assert len(read) == len(written)
            for one, other in zip(read, written, strict=True):
                same(one, other)
        else:
            assert read == written

    same(of_nodes.plan_of(whole), whole)


def test_nodes_read_the_plan_as_it_was_written(document):
    plan = of_nodes.plan_of(document)
    step = document["steps"][0]
    assert (plan.run, plan.folder, plan.backend) == (document["run"], document["folder"], document["backend"])
    assert plan.timeouts._asdict() == document["timeouts"]
    assert plan.step.tasks.argv == tuple(step["tasks"]["argv"])
    assert plan.step.tasks.env == step["tasks"]["env"]
    assert plan.step.request.nodes == step["request"]["nodes"]
    assert plan.step.checkpoint.path == step["checkpoint"]["path"]


@pytest.mark.parametrize(
    ("given", "read"), [(None, None), ("self", "self"), (["--resume", "{checkpoint}"], ("--resume", "{checkpoint}"))]
)
def test_resume_is_arguments_or_the_scripts_own_business(document, given, read):
    document["steps"][0]["checkpoint"]["resume"] = given
    assert of_nodes.plan_of(document).step.checkpoint.resume == read


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda plan: plan.pop("timeouts"), "'timeouts'"),
        (lambda plan: plan["timeouts"].update(lease_s="8"), "'lease_s'"),
        (lambda plan: plan["steps"][0]["tasks"]["env"].update(A=1), "'env'"),
        (lambda plan: plan["steps"][0]["checkpoint"].update(resume="other"), "'resume'"),
        (lambda plan: plan.update(steps=[]), "no step"),
    ],
)
def test_what_is_no_plan_is_refused_by_the_name_of_its_part(document, change, name):
    change(document)
    with pytest.raises(RunFolderError, match=name):
        of_nodes.plan_of(document)
