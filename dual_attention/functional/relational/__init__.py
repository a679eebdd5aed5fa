"""Relational attention as one operation over projected tensors, with its implementations."""

from .api import RelationalAttentionOutput, relational_attention
from .workspace import free_workspace

__all__ = ["RelationalAttentionOutput", "free_workspace", "relational_attention"]
