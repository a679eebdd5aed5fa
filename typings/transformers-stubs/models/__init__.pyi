# ruff: noqa: F403
# The models that our code and pages name: a checker reads all 500 in the package otherwise, a third of its time.
from .auto import *
from .gpt2 import *
from .llama import *
