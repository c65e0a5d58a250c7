"""What is planned of `[notify]`."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from cordee.core.findings import Finding
from cordee.job.plan.examination import Contribution, Examination, ShownPaths

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class NoticesExamination(Examination):
    """See Examination."""

    def contribute(self, shown: Sequence[ShownPaths]) -> Contribution:
        notify = self.loaded.job.notify
        if notify is None:
            return Contribution()
        findings = []
        if not (notify.mail or notify.webhook or notify.command):
            file, line = self.loaded.place("notify")
            text, what = "[notify] tells nobody", "add mail, webhook or command"
            findings.append(Finding(text, "warn", "no-meaning", file, line, next=what))
        parts = urlsplit(notify.webhook or "https://there")
        open_wire = parts.scheme == "http" and parts.hostname not in _LOOPBACK and notify.token_file
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or open_wire:
            file, line = self.loaded.place("notify", "webhook")
            text = "the token would cross the network in the clear" if open_wire else "notify.webhook is no address"
            allowed = "https, or http to this machine; a secret goes into token_file"
            findings.append(Finding(text, "error", "notify-webhook", file, line, parts.hostname, allowed, "change it"))
        return Contribution(notify.model_dump(mode="json"), findings)
