"""Services: what surrounds a training, from a catalogue of blueprints; on processes, podman and Slurm as runs, for Kubernetes as manifests."""
