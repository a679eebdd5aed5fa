"""Images to classify: CIFAR with the paper's Vision Transformers and ViDATs, and handwritten digits."""
