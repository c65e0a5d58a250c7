"""What can be done about a node: drain and resume by Slurm, the rest by the site's own commands."""

from __future__ import annotations

from cordee.job.fleet_site import SiteActions
from cordee.machine.tasks.actions import ActionError
from cordee.systems.vetting.fleet.actions._base import Action

__all__ = ["Action", "ActionError", "make_actions"]


def make_actions(site: SiteActions) -> dict[str, Action]:
    """Return the actions that a site allows, by name; drain and resume are always among them."""
    from cordee.systems.vetting.fleet.actions.command import SiteCommand, SiteVetting
    from cordee.systems.vetting.fleet.actions.slurm import SlurmDrain, SlurmResume
    from cordee.systems.vetting.fleet.actions.ticket import TicketCommand, TicketWebhook

    actions: dict[str, Action] = {"drain": SlurmDrain(), "resume": SlurmResume()}
    templates = {"reset_gpu": site.reset, "reboot": site.reboot, "diagnose": site.diagnose, "vet": site.vet}
    for name, template in templates.items():
        if template is not None:
            kind = SiteVetting if name == "vet" else SiteCommand
            actions[name] = kind(template, site.timeout)
    if site.ticket is not None:
        actions["ticket"] = TicketCommand(site.ticket, site.timeout)
    elif site.ticket_url is not None:
        actions["ticket"] = TicketWebhook(site.ticket_url, site.ticket_token_file)
    return actions
