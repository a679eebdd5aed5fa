"""C kernels for the tests that ask for them."""

import pytest

from dual_attention import native
from tests.support.compilers import HAS_COMPILER


@pytest.fixture
def enabled():
    if not HAS_COMPILER:
        pytest.skip("needs a C compiler")
    native.enable()  # where there is a compiler, kernels that cannot be built are a failure
    yield
    native.disable()
