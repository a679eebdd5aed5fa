"""What layers share: heads, masks and caches between calls, checks of inputs."""
