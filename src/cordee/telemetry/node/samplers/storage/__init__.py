"""What a node reads from and writes to shared file systems and local disks."""
