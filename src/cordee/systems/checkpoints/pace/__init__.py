"""What a run's storage did, and what its checkpoints cost the training: see `storage_view`."""

from cordee.systems.checkpoints.pace.view import StorageView, storage_view

__all__ = ["StorageView", "storage_view"]
