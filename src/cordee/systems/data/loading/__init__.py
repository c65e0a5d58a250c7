"""What a run's loading of data cost the training: see `loading_view`."""

from cordee.systems.data.loading.view import LoadingView, loading_view

__all__ = ["LoadingView", "loading_view"]
