"""Names under which Cordée's own parts tell the run something through a rank's channel."""

from __future__ import annotations

CHECKPOINT_SECONDS, CHECKPOINT_BYTES = "cordee/checkpoint_seconds", "cordee/checkpoint_bytes"
CHECKPOINT_BLOCKING, CHECKPOINT_SNAPSHOT = "cordee/checkpoint_blocking", "cordee/checkpoint_snapshot_seconds"
