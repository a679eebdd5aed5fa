"""The suites by name, in the order in which they run."""

from benchmarks.cases import Suite
from benchmarks.suites import crossing, generation, memory, relative, short, step

SUITES: dict[str, Suite] = {
    suite.name: suite
    for suite in (step.SUITE, memory.SUITE, relative.SUITE, short.SUITE, generation.SUITE, crossing.SUITE)
}
