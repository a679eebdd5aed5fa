"""Marks of transformers' own tests, see test_transformers_suite.py."""

import pytest

MARKS = """
accelerate_tests executorch_export_test flash_attn_test flash_attn_3_test flash_attn_4_test flash_attn_all_test generate
is_agent_test is_expert_parallel_test is_fsdp_test is_pipeline_test is_staging_test is_tensor_parallel_test
is_training_test onnx_export_test order timeout torch_compile_test torch_export_test not_device_test
"""


def pytest_configure(config: pytest.Config) -> None:
    """Declare them."""
    for name in MARKS.split():
        config.addinivalue_line("markers", f"{name}: of transformers")
