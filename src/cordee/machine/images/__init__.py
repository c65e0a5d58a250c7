"""Container images as files: their index, layers and configuration, read, verified and decompressed, without unpacking any."""
