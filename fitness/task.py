"""A task: which op on which operands at which shapes. The fixed side of a search; kernels are the free one."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from fitness.dtypes import DTYPES
from fitness.epilogue import Epilogue
from fitness.expressions import Expression
from fitness.formats import Format, get_format
from fitness.formats.format import complete
from fitness.gpu import Gpu
from fitness.kernel import FormatChoice, Kernel
from fitness.kernel_fit import check_kernel
from fitness.ops import Op, get_op
from fitness.outcome import Finding
from fitness.patterns import Pattern, make_pattern
from fitness.shapes import FULL_TARGETS, SMALL_TARGETS, fit, hidden_target
from fitness.taskspec import TaskError, read_spec

__all__ = ["HIDDEN_SHAPES", "Shape", "Task", "TaskError"]

Shape = Mapping[str, int]

HIDDEN_SHAPES: Final = 3
"""How many hidden shapes a seed draws; gate 5 uses the first, confirmation all."""


@dataclass(frozen=True)
class Task:
    """One task. Make it with `from_spec`, which checks everything.

    Attributes:
        op: name of the op; pattern: table of W's pattern, None for a dense op.
        dtype, out_dtype, acc: element types of W and X, of Y, and of accumulation.
        x_layout, y_layout: "col" (X[n*ldx + k], Y[n*ldy + m]) or "row" (X[k*ldx + n], Y[m*ldy + n]).
        shapes: the timed shapes; free: dimensions that hidden shapes vary.
        domain: conditions every shape obeys.
        seeds: patterns of starting kernels; baseline: "auto", a seed, a vendor
            routine or "module:function" of a callable (w, x) -> y.
        tolerance: "auto", or a table with `tau` and `frobenius`.
        epilogue: what follows the product, in order (see `fitness.epilogue`).
    """

    op: str
    pattern: Mapping[str, Any] | None
    dtype: str
    out_dtype: str
    acc: str
    x_layout: str
    y_layout: str
    shapes: tuple[Shape, ...]
    free: tuple[str, ...]
    domain: tuple[Expression, ...]
    seeds: tuple[str, ...]
    baseline: str
    tolerance: str | Mapping[str, float] = "auto"
    epilogue: tuple[str, ...] = ()

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    @staticmethod
    def from_spec(spec: Mapping[str, Any]) -> Task:
        """A task from the `[task]` table of an experiment.

        Raises:
            TaskError: carrying all problems at once, each with the nearest valid spelling.
        """
        return Task(**read_spec(spec))

    @functools.cached_property
    def fingerprint(self) -> str:
        """sha256 (hex) of everything that decides what is computed; seeds and baseline are not part of it."""
        tolerance = self.tolerance if isinstance(self.tolerance, str) else dict(self.tolerance)
        content = {
            "op": self.op,
            "pattern": None if self.pattern is None else dict(self.pattern),
            "types": [self.dtype, self.out_dtype, self.acc],
            "layouts": [self.x_layout, self.y_layout],
            "shapes": [dict(shape) for shape in self.shapes],
            "free": list(self.free),
            "domain": [condition.text for condition in self.domain],
            "tolerance": tolerance,
            **({"epilogue": list(self.epilogue)} if self.epilogue else {}),
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    # -- parts ----------------------------------------------------------------------------------------------------

    @property
    def operation(self) -> Op:
        """The op."""
        return get_op(self.op)

    @property
    def structure(self) -> Pattern:
        """The pattern of W; dense where the task gives none."""
        return make_pattern(self.pattern or {"kind": "dense"})

    @property
    def shape_names(self) -> tuple[str, ...]:
        """The dimensions of its shapes."""
        return self.operation.shape_names

    @property
    def chain(self) -> Epilogue:
        """What follows the product."""
        return Epilogue(self.epilogue)

    @property
    def defines(self) -> tuple[str, ...]:
        """Compiler definitions that tell `task.cuh` types, layouts and epilogue; none where they are its defaults."""
        macros = (
            ("EVO_IN", _macro(self.dtype), "EVO_FLOAT16"),
            ("EVO_OUT", _macro(self.out_dtype), _macro(self.dtype)),
            ("EVO_X_ROW", str(int(self.x_layout == "row")), "0"),
            ("EVO_Y_ROW", str(int(self.y_layout == "row")), "0"),
            ("EVO_EPILOGUE", self.chain.code, ""),
        )
        return tuple(f"-D{name}={value}" for name, value, default in macros if value != default)

    def supports(self, format: str | FormatChoice) -> bool:  # noqa: A002 - the design's word
        """True if W can be stored in that format: dtype and structure fit."""
        return not self.unsupported(format)

    def unsupported(self, format: str | FormatChoice) -> str:  # noqa: A002
        """Why W cannot be stored in that format (a name means its default options); empty if it can."""
        choice = FormatChoice(format) if isinstance(format, str) else format
        storage = get_format(choice.name)
        options = complete(storage, {name: str(option) for name, option in choice.options.items()})
        if reason := storage.supports(DTYPES[self.dtype].numpy):
            return reason
        shape = self.small_shapes()[0]
        mask = self.structure.mask((shape["M"], shape["K"]), np.random.default_rng(0))
        try:
            storage.validate(mask.astype(DTYPES[self.dtype].numpy), options)
        except ValueError as error:
            return f"{storage.name} cannot store the task's pattern: {error}"
        ratio = storage.ratio(options)
        if ratio is not None and not self.structure.keeps(*ratio):
            n, m = ratio
            return f"{storage.name} cannot store the task's pattern: it need not keep to {n} of every {m} along K"
        return ""

    def argument_names(self, format: str | Format = "dense") -> tuple[str, ...]:  # noqa: A002
        """Names a launch may pass: arrays of the format, operands, shape names, leading dimensions."""
        storage = get_format(format) if isinstance(format, str) else format
        options = {name: choices[0] for name, choices in storage.options.items()}
        sizes = (f"W.{name}" for name in storage.sizes)
        return (*self.operation.argument_names(storage.argument_names(options)), *sizes)

    def size_names(self, format: str) -> tuple[str, ...]:  # noqa: A002
        """Integers that a format adds to what header expressions and arguments may name ("W.nblocks")."""
        return tuple(f"W.{name}" for name in get_format(format).sizes)

    @property
    def baseline_routine(self) -> str:
        """The vendor routine or "module:function" that is named as the baseline; empty where a kernel or none is."""
        from fitness.baselines import BASELINES

        return self.baseline if self.baseline in BASELINES or ":" in self.baseline else ""

    @property
    def baseline_seed(self) -> str:
        """The seed speedups are counted against, where no routine is: on the modelled clock."""
        if self.baseline != "auto" and not self.baseline_routine:
            return self.baseline
        layouts = (self.x_layout, self.y_layout)
        return self.operation.simulator_baseline((self.dtype, self.out_dtype), layouts, epilogue=bool(self.epilogue))

    # -- cost -----------------------------------------------------------------------------------------------------

    def nnz(self, shape: Shape) -> float:
        """Expected nonzeros of W."""
        rows, columns = shape["M"], shape["K"]
        return self.structure.density((rows, columns)) * rows * columns

    def flops(self, shape: Shape) -> float:
        """Multiplications and additions of the nonzeros: 2 * nnz * N for a product."""
        return self.operation.flops(shape, self.nnz(shape))

    def minimal_bytes(self, shape: Shape) -> float:
        """Bytes that must cross DRAM: nonzeros of W with the pattern's cheapest index, X once, Y once."""
        itemsize = DTYPES[self.dtype].numpy.itemsize
        index_bits = self.structure.index_bits((shape["M"], shape["K"]))
        w_bytes = self.nnz(shape) * (itemsize + index_bits / 8)
        out_itemsize = DTYPES[self.out_dtype].numpy.itemsize
        added = self.chain.bytes(shape["M"], shape["N"], itemsize, out_itemsize)
        return w_bytes + added + self.operation.dense_bytes(shape, itemsize, out_itemsize)

    def floor_us(self, shape: Shape, gpu: Gpu) -> float:
        """Roofline floor at a shape on a card, launch included. Microseconds."""
        return gpu.floor_us(self.minimal_bytes(shape), self.flops(shape), self.dtype)

    # -- shapes ---------------------------------------------------------------------------------------------------

    def in_domain(self, shape: Shape) -> bool:
        """True if every condition of the domain holds at the shape."""
        return all(condition.evaluate(shape) for condition in self.domain)

    def small_shapes(self) -> tuple[Shape, ...]:
        """The shapes of gate 4's fixed runs, in the order of `inputs.small_runs`."""
        return self._fitted(SMALL_TARGETS)

    def full_shapes(self) -> tuple[Shape, ...]:
        """The small shapes of the full lists (seeds, confirmation): tails around every common tile."""
        return self._fitted(FULL_TARGETS)

    def _fitted(self, targets: tuple[Shape, ...]) -> tuple[Shape, ...]:
        fixed = self.operation.fixed  # at once, where `fit` would have to look for it
        return tuple(fit({**target, **fixed}, self.domain) for target in targets)

    def hidden_shapes(self, seed: int) -> tuple[Shape, ...]:
        """Shapes no operator sees: `free` dimensions drawn from 1 .. 2x the largest listed, at full size.

        The first, which gate 5 uses, lies beyond the largest listed.
        """
        entropy = [int(self.fingerprint[:8], 16), seed]
        rng = np.random.default_rng(np.random.SeedSequence(entropy))
        targets = [hidden_target(self.shapes, self.free, rng, beyond=i == 0) for i in range(HIDDEN_SHAPES)]
        return tuple(fit(target, self.domain) for target in targets)

    def domain_violations(self, kernel: Kernel) -> tuple[Finding, ...]:
        """What makes `kernel` unacceptable for this task, whatever it computes.

        An unsupported format, names in expressions or arguments that the task does not have, and a `require`
        that fails anywhere on the shapes the task may ask for (listed, small, hidden).
        """
        shapes = (*self.shapes, *self.small_shapes(), *self.full_shapes())
        hidden = tuple(shape for seed in range(4) for shape in self.hidden_shapes(seed))
        return check_kernel(
            kernel,
            shapes=[self.expression_names(shape) for shape in shapes],
            hidden=[self.expression_names(shape) for shape in hidden],
            arguments=self.argument_names(kernel.header.format.name),
            sizes=self.size_names(kernel.header.format.name),
            unsupported=self.unsupported(kernel.format),
            dtypes=(self.dtype, self.out_dtype),
            layouts=(self.x_layout, self.y_layout),
        )

    def expression_names(self, shape: Shape) -> dict[str, int]:
        """Shape names and leading dimensions at a shape, as expressions may use them."""
        ldx = shape["K"] if self.x_layout == "col" else shape["N"]
        ldy = shape["M"] if self.y_layout == "col" else shape["N"]
        return {**shape, "ldx": ldx, "ldy": ldy}


def _macro(dtype: str) -> str:
    return f"EVO_{dtype.upper()}"
