"""What the kernel is measured against.  Written as the peer's own documentation and tests would write it."""
