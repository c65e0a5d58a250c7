"""The layers of an image: read, decompressed, verified, and merged into one tree."""
