"""The image store: squashfs files by digest, and the names that are pinned to them."""
