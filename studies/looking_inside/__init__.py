"""Studies of trained models, each announced before it was run; ``experiments/looking_inside`` has their results."""
