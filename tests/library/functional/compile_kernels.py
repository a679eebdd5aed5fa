"""Compile the fused kernels for GPUs that need not be present, and report what became of each.

``python -m tests.library.functional.compile_kernels [case ...]``, from the root of the checkout and without
TRITON_INTERPRET, compiles the cases that are named, every one for ``all``, and without a name the few of
:data:`TELLING`.
The first line printed is a JSON list of the package's kernels; then comes one object for each launch: its ``case`` and
``kernel``, the bytes of shared memory it needs (``shared``) and may have (``limit``), or else its ``error``. Of a case
that is ``disassembled`` it also says what :func:`machine_code` tells.
"""

import importlib
import json
import pkgutil
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import triton
from triton.backends.compiler import GPUTarget

import dual_attention.functional.triton as kernels_package
from dual_attention.functional.triton import launch
from dual_attention.functional.triton.loss import overwrite_logits
from dual_attention.functional.triton.pairs_operation import PairsCall
from dual_attention.functional.triton.tuning import pair_tuning, tuning

Report = Callable[..., None]


class AbsentGPU(NamedTuple):
    """A GPU as Triton's driver would describe it; to compile needs no more than that.

    Attributes:
        capability: compute capability times ten.
        shared_memory: bytes that one program may have.
    """

    capability: int
    shared_memory: int

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self) -> int:
        return self.capability  # kernels are kept by device: those of one GPU must not be taken for another's

    def get_current_stream(self, device: int) -> int:
        return 0


HOPPER = AbsentGPU(90, 227 * 1024)
ADA = AbsentGPU(89, 99 * 1024)


class Case(NamedTuple):
    """One call; see :mod:`dual_attention.functional.triton.launch` for the letters."""

    gpu: AbsentGPU = HOPPER
    dtype: torch.dtype = torch.bfloat16
    precision: str = "highest"
    backward: bool = True
    batch: int = 2
    heads: int = 8
    groups: int = 4
    n: int = 256
    m: int = 256
    width: int = 64
    head_width: int = 64
    n_relations: int = 32
    p: int = 16
    relative: bool = False
    one_batch: bool = False  # symbols that all examples share
    causal: bool = False
    window: int | None = None
    padded: bool = False
    packed: bool = False
    offset: int = 0
    disassembled: bool = False
    pairs: bool = False
    vocabulary: int = 0  # of a loss

    def call(self) -> launch.Call:
        def empty(*shape: int, dtype: torch.dtype = self.dtype) -> torch.Tensor:
            return torch.empty(shape, dtype=dtype, device="meta")

        max_offset = 64
        of_senders = (1 if self.one_batch else self.batch, self.groups, self.m)
        table = (2 * max_offset + 1, self.groups) if self.relative else of_senders
        arguments = launch.KernelArguments(
            empty(self.batch, self.heads, self.n, self.width),
            empty(self.batch, self.groups, self.m, self.width),
            empty(self.batch, self.n, self.n_relations, self.p),
            empty(self.batch, self.m, self.n_relations, self.p),
            empty(*table, self.head_width),
            empty(self.batch, self.m, dtype=torch.bool) if self.padded else None,
            empty(self.batch, self.n, dtype=torch.long) if self.packed else None,
            empty(self.batch, self.m, dtype=torch.long) if self.packed else None,
            max_offset if self.relative else None,
            self.offset if self.relative else 0,
            self.causal,
            self.window,
            self.offset,
            0.125,
            0.25,
            pair_tuning(self.gpu.shared_memory).numbers() if self.pairs else None,
            self.backward,
        )
        return PairsCall(arguments) if self.pairs else launch.Call(arguments)


UNEVEN = {"n": 200, "m": 257, "offset": 57}
EVERY_MASK = {"causal": True, "window": 7, "padded": True, "packed": True}
STEP = {"n": 1, "m": 257, "offset": 256, "causal": True, "backward": False}
SHORT = {"width": 40, "head_width": 24, "n_relations": 7, "p": 5, "groups": 8}
WIDE = {"width": 256, "head_width": 256}
FULL = {"batch": 8, "n": 1024, "m": 1024, "n_relations": 8, "p": 64, "causal": True}

CASES = {
    "causal, shared": Case(causal=True),
    "causal, relative": Case(causal=True, relative=True),
    "every mask, relative": Case(**UNEVEN, **EVERY_MASK, relative=True),
    "every mask, shared, many relations": Case(**UNEVEN, **EVERY_MASK, n_relations=64),
    "machine code": Case(**FULL, disassembled=True),
    "loss": Case(vocabulary=50_304),
    "loss, fp32": Case(vocabulary=100, dtype=torch.float32),
    "machine code, many relations": Case(**FULL | {"n_relations": 64, "p": 8}, disassembled=True),
    "machine code, pairs": Case(**FULL, pairs=True, disassembled=True),
    "pairs, every mask": Case(**UNEVEN, **EVERY_MASK, heads=6, groups=2, n_relations=3, p=5, pairs=True),
    "pairs, one of each": Case(heads=1, groups=1, n_relations=1, p=5, width=8, pairs=True),
    "pairs, widest": Case(heads=2, groups=1, n_relations=2, p=256, width=256, causal=True, pairs=True),
    "pairs, little shared memory": Case(gpu=ADA, n_relations=8, p=64, causal=True, pairs=True),
    "step, shared": Case(**STEP),
    "step, relative": Case(**STEP, relative=True),
    "step, window, fp32": Case(**STEP, window=9, dtype=torch.float32),
    "width 128, packed, shared": Case(width=128, head_width=128, p=32, causal=True, packed=True),
    "width 128, relative, fp16": Case(width=128, head_width=128, p=8, causal=True, relative=True, dtype=torch.float16),
    "width 256, relative": Case(**WIDE, padded=True, relative=True),
    "uneven widths, window, shared": Case(**UNEVEN, **SHORT, window=100, padded=True, one_batch=True),
    "fp32, every mask, relative": Case(**UNEVEN, **EVERY_MASK, dtype=torch.float32, relative=True),
    "fp32 as tf32, shared": Case(dtype=torch.float32, precision="high", causal=True),
    "little shared memory, packed, relative": Case(gpu=ADA, causal=True, packed=True, relative=True),
    "little shared memory, width 256, relative": Case(**WIDE, gpu=ADA, window=9, relative=True),
    "little shared memory, uneven widths, one batch": Case(**UNEVEN, **SHORT, gpu=ADA, window=100, one_batch=True),
}

TELLING = (
    "every mask, relative",
    "step, window, fp32",
    "little shared memory, uneven widths, one batch",
    "pairs, every mask",
    "loss",
)
"""Cases that between them compile every kernel, most of them for both GPUs and with both kinds of symbols, and one in
float32. ``all`` compiles every size of tiles too."""


class CompileOnly:
    """A kernel whose launches are compiled and reported in place of being run."""

    disassembled = False

    def __init__(self, kernel: Any, report: Report) -> None:
        self.kernel = kernel
        self.arg_names = kernel.arg_names
        self.report = report

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def compile_for(*args: Any, **kwargs: Any) -> None:
            try:
                compiled = self.kernel.warmup(*args, grid=grid, **kwargs)
            except Exception as error:  # of any kind: from the front end, from MLIR's passes, from ptxas
                self.report(kernel=self.kernel.__name__, error=f"{type(error).__name__}: {error}")
            else:
                told = machine_code(compiled) if self.disassembled else {}
                self.report(kernel=self.kernel.__name__, shared=compiled.metadata.shared, **told)

        return compile_for


def machine_code(compiled: Any) -> dict[str, float]:
    """What the machine code of a kernel for Hopper tells of it.

    Returns bytes of ``stack`` for registers that did not fit, ``programs`` that fit on a multiprocessor together, and
    of the main loop ``waits`` for matrix products, clocks of the ``products`` at their peak, and the clocks that it
    takes to issue all that is ``beside`` them.
    """
    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()

        def output_of(tool: str, option: str) -> str:
            return subprocess.run([tools / tool, option, file.name], capture_output=True, text=True, check=True).stdout

        usage = re.search(r"REG:(\d+) STACK:(\d+)", output_of("cuobjdump", "-res-usage"))
        loop = main_loop(output_of("nvdisasm", "-c"))
    assert usage is not None
    warps, products = compiled.metadata.num_warps, [int(width) for width in re.findall(r"HGMMA\.64x(\d+)x16", loop)]
    registers = 65536 // (int(usage[1]) * warps * 32)
    return {
        "stack": int(usage[2]),
        "programs": min(registers, HOPPER.shared_memory // max(compiled.metadata.shared, 1)),
        "waits": loop.count("WARPGROUP."),
        "products": warps // 4 * sum(64 * width * 16 for width in products) / 2048,
        "beside": warps / 4 * (len(loop.splitlines()) - len(products)),
    }


def main_loop(disassembly: str) -> str:
    """The shortest loop with more than half as many matrix products as any, an instruction a line."""
    instructions: list[str] = []
    labels: dict[str, int] = {}
    loops = []
    for line in disassembly.splitlines():
        if label := re.match(r"\s*(\.L_\w+):", line):
            labels[label[1]] = len(instructions)
        elif found := re.search(r"/\*[0-9a-f]+\*/\s+(.*?);", line):
            instructions.append(found[1])
            back = re.search(r"BRA\b.*?(\.L_\w+)", found[1])
            if back and back[1] in labels:
                loops.append("\n".join(instructions[labels[back[1]] :]))
    most = max(loop.count("MMA.") for loop in loops)
    return min((loop for loop in loops if 2 * loop.count("MMA.") >= most), key=len)


def replace_kernels(report: Report) -> list[str]:
    """Put a :class:`CompileOnly` in the place of each kernel wherever the package names it; return their names."""
    names = set()
    for module_info in pkgutil.iter_modules(kernels_package.__path__):
        module = importlib.import_module(f"{kernels_package.__name__}.{module_info.name}")
        for name, value in list(vars(module).items()):
            if isinstance(value, triton.JITFunction) and name.endswith("_kernel"):
                setattr(module, name, CompileOnly(value, report))
                names.add(name)
    return sorted(names)


def main(chosen: list[str]) -> None:
    if launch.INTERPRETED:
        raise SystemExit("TRITON_INTERPRET is set: the interpreter compiles nothing")
    case_of: dict[str, Any] = {}

    def report(**what: Any) -> None:
        print(json.dumps({**case_of, **what}), flush=True)

    print(json.dumps(replace_kernels(report)))
    for name in CASES if chosen == ["all"] else chosen or TELLING:
        case = CASES[name]
        case_of.update(case=name, limit=case.gpu.shared_memory)
        torch.set_float32_matmul_precision(case.precision)
        launch.tuning = lambda *arguments, limit=case.gpu.shared_memory: tuning(*arguments[:-1], limit)
        triton.runtime.driver.set_active(case.gpu)
        CompileOnly.disassembled = case.disassembled
        if case.vocabulary:
            logits = torch.empty(case.n, case.vocabulary, dtype=case.dtype, device="meta")
            overwrite_logits(logits, logits.new_empty(case.n, dtype=torch.long), logits.new_empty(case.n).float())
            continue
        call = case.call()
        if isinstance(call, PairsCall):
            relations, log_sum = call.forward_pairs()
            call.backward_pairs(relations, relations, log_sum)
            continue
        symbols, relations, *kept = call.forward()
        if case.backward:
            call.backward(symbols, relations, symbols, *kept)


if __name__ == "__main__":
    main(sys.argv[1:])
