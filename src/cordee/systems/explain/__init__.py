"""Why a training hangs: which rank broke the collective that all others wait in, and where it stands."""
