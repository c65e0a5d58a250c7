"""Does the node's memory break?"""

from __future__ import annotations

from typing import Any

from cordee.core.units import format_size
from cordee.machine.edac import MOST_CORRECTED, machine_check_exceptions, poisoned_bytes, read_memory_errors
from cordee.systems.vetting.node.checks._base import CannotTest, Check, Context, Parameter, Result


class EdacCheck(Check):
    """Fails at uncorrected memory errors since boot; warns at many corrected ones, broken pages, machine check exceptions."""

    name = "host.edac"
    title = "Have memory or processors reported errors since the node booted?"
    parameters = (
        Parameter("max_uncorrected", "count", "most uncorrected memory errors", default=0, unit="errors"),
        Parameter(
            "max_corrected",
            "count",
            "most corrected errors of one memory module",
            default=MOST_CORRECTED,
            unit="errors",
        ),
    )

    def run(self, parameters: dict[str, Any], context: Context) -> Result:
        errors = read_memory_errors(context.root)
        exceptions, poisoned = machine_check_exceptions(context.root), poisoned_bytes(context.root)
        warnings = []
        if poisoned:
            warnings.append(f"the kernel has taken {format_size(poisoned)} of broken memory out of use")
        if exceptions:
            warnings.append(f"{exceptions} machine check exceptions since boot")
        if errors is None:
            if warnings:
                return self.result("warn", "; ".join(warnings))
            place = context.host("/sys/devices/system/edac/mc")
            raise CannotTest(f"the kernel does not count memory errors here: no memory controller in {place}", "absent")
        most_uncorrected, most_corrected = parameters["max_uncorrected"], parameters["max_corrected"]
        uncorrected = sum(module.uncorrected for module in errors)
        facts = {
            "modules": [module._asdict() for module in errors],
            "machine_check_exceptions": exceptions,
            "poisoned_bytes": poisoned,
        }
        faults = [f"{module.place}: {module.uncorrected} uncorrected errors" for module in errors if module.uncorrected]
        warnings += [
            f"{module.place}: {module.corrected} corrected errors"
            for module in errors
            if module.corrected > most_corrected
        ]
        status = "fail" if uncorrected > most_uncorrected else "warn" if warnings else "pass"
        fine = f"no memory errors above the limits on {len(errors)} memory modules"
        return self.result(
            status,
            "; ".join(faults + warnings) or fine,
            value=uncorrected,
            unit="uncorrected errors",
            threshold=most_uncorrected,
            facts=facts,
        )
