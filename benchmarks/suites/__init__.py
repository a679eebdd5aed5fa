"""The suites by name, in the order in which they run."""

from benchmarks.cases import Suite
from benchmarks.suites import crossing, decoding, generation, layers, short

SUITES: dict[str, Suite] = {
    suite.name: suite
    for suite in (
        layers.STEP,
        layers.MEMORY,
        layers.RELATIVE,
        short.SUITE,
        generation.SUITE,
        decoding.SUITE,
        generation.COMPILED,
        crossing.SUITE,
    )
}
