"""Services: what surrounds a training."""

from __future__ import annotations

from cordee.core.registry import Page, System

SYSTEM = System(
    name="services",
    tables={"services": ""},
    examine="cordee.systems.services.examine:ServicesExamination",
    keep="cordee.systems.services.examine:keep_services",
    offers={"deployed-service": "cordee.systems.services.offered:deployed_service"},
    views="cordee.systems.services.views:ServicesView",
    routes="cordee.systems.services.routes:router",
    pages=(Page("services", "services.js", "Services", tab=True),),
    node_parts={
        "stager/services": "cordee.systems.services.node.stager:ServiceStager",
        "companion/services": "cordee.systems.services.node.companion:ServiceCompanion",
    },
)
