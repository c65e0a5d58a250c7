"""What a training script reads its samples by: `cordee.dataset`."""
