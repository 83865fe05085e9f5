"""What a container is allowed, what it is made from, and how it ends."""
