"""Common parts of the layers: heads, masks and caches between calls, checks of inputs."""
