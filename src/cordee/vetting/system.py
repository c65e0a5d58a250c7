"""Vetting: nodes looked at before they are used, from what each says of itself to a verdict on all of them."""

from __future__ import annotations

from cordee.registry import System

SYSTEM = System(
    name="vetting",
    tables={"vet": ""},
    always=True,
    read="cordee.spec.protocol_of_job:read_protocol",
    examine="cordee.vetting.examine:VettingExamination",
    keep="cordee.vetting.examine:keep_protocol",
    node_parts={"preparation": "cordee.vetting.preparation:Vetting", "checks": "cordee.checks"},
)
