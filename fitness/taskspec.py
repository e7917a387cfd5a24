"""The `[task]` table of an experiment -> the fields of a Task, with every problem reported at once."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any, Final

from fitness.dtypes import DTYPES
from fitness.epilogue import STEPS, problem
from fitness.expressions import Expression, ExpressionError, nearest
from fitness.ops import Op, get_op
from fitness.patterns import (
    BandedPattern,
    BlockPattern,
    ChannelsPattern,
    FilePattern,
    NmPattern,
    Pattern,
    PatternError,
    PeriodicPattern,
    PowerLawPattern,
    RandomPattern,
    RowsPattern,
    make_pattern,
)
from fitness.registry import UnknownNameError
from fitness.shapes import FULL_TARGETS, SMALL_TARGETS, EmptyDomainError, fit

MAX_SHAPES: Final = 64
MAX_DIMENSION: Final = 2**31 - 1
MAX_OPERAND_BYTES: Final = 8 * 2**30

KEYS: Final = (
    "op", "pattern", "dtype", "out_dtype", "acc", "x_layout", "y_layout", "shapes", "free", "domain", "seeds",
    "baseline", "tolerance", "epilogue",
)  # fmt: skip
"""Keys of a `[task]` table."""
_ACCUMULATORS: Final = ("float32",)
_LAYOUTS: Final = ("col", "row")
_PLAIN: Final = ("float16", "float16", "col", "col", ())  # what the seeds called dense are written for


#: Pattern -> the seeds in the formats made for it.
_SEEDS: Final[tuple[tuple[type[Pattern], tuple[str, ...]], ...]] = (
    (BlockPattern, ("spmm/bsr_*", "spmm/blocked_ell_*")),
    (RowsPattern, ("spmm/rows_*", "spmm/csr_*")),
    (ChannelsPattern, ("spmm/channels_*", "spmm/csr_*")),
    (PeriodicPattern, ("spmm/periodic_*", "spmm/csr_*")),
    (BandedPattern, ("spmm/dia_*", "spmm/csr_*")),
    (RandomPattern, ("spmm/csr_*",)),
    (PowerLawPattern, ("spmm/csr_*",)),
    (FilePattern, ("spmm/csr_*", "spmm/sell_*")),
)


class TaskError(ValueError):
    """A task table that means nothing.

    Attributes:
        errors: every problem found: key path ("shapes[1].K"), what is wrong, what to write instead.
    """

    def __init__(self, errors: Iterable[tuple[str, str, str]]) -> None:
        self.errors = tuple(errors)
        super().__init__("\n".join(f"{key}: {problem}; {fix}" for key, problem, fix in self.errors))

    def __reduce__(self) -> tuple[type[TaskError], tuple[tuple[tuple[str, str, str], ...]]]:
        return TaskError, (self.errors,)


def read_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Every field of a Task, defaults filled in.

    Raises:
        TaskError: carrying all problems.
    """
    return _Reader(spec).read()


class _Reader:
    """Collects errors instead of raising; a field with an error gets a stand-in so that the rest is still checked."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self.spec = spec
        self.errors: list[tuple[str, str, str]] = []

    def error(self, key: str, problem: str, fix: str) -> None:
        self.errors.append((key, problem, fix))

    def read(self) -> dict[str, Any]:
        for key in self.spec:
            if key not in KEYS:
                self.error(str(key), "unknown key", nearest(str(key), KEYS))
        op = self.op()
        pattern = self.pattern(op)
        dtype = self.choice("dtype", "float16", DTYPES)
        layouts = (
            op.default_layouts((self.spec.get("pattern") or {"kind": "dense"})["kind"]) if op and pattern else _LAYOUTS
        )
        fields: dict[str, Any] = {
            "op": self.spec.get("op"),
            "pattern": self.spec.get("pattern"),
            "dtype": dtype,
            "out_dtype": self.choice("out_dtype", dtype, DTYPES),
            "acc": self.choice("acc", "float32", _ACCUMULATORS),
            "x_layout": self.choice("x_layout", layouts[0], _LAYOUTS),
            "y_layout": self.choice("y_layout", layouts[1], _LAYOUTS),
            "baseline": self.text("baseline", "auto"),
            "tolerance": self.tolerance(),
            "epilogue": self.epilogue(),
        }
        plain = (fields["dtype"], fields["out_dtype"], fields["x_layout"], fields["y_layout"], fields["epilogue"])
        fields["seeds"] = self.seeds(_default_seeds(op, pattern, plain=plain == _PLAIN))
        names = op.shape_names if op else ("M", "N", "K")
        fixed = op.fixed if op else {}
        fields["domain"] = self.domain(pattern, names, fixed)
        fields["shapes"] = self.shapes(names, fixed, fields["domain"])
        fields["free"] = self.free(tuple(name for name in names if name not in fixed))
        self.reachable(fields["domain"], fixed)
        if self.errors:
            raise TaskError(self.errors)
        return fields

    # -- keys -----------------------------------------------------------------------------------------------------

    def op(self) -> Op | None:
        value = self.spec.get("op")
        if not isinstance(value, str):
            self.error("op", "missing" if value is None else f"{value!r} is not a string", 'write op = "spmm"')
            return None
        try:
            return get_op(value)
        except UnknownNameError as error:
            self.error("op", *_halves(error))
            return None

    def pattern(self, op: Op | None) -> Pattern | None:
        spec = self.spec.get("pattern")
        if spec is None:
            if op is not None and op.sparse:
                self.error(
                    "pattern", f"missing, but {op.name} is sparse", 'write pattern = { kind = "nm", n = 2, m = 4 }'
                )
                return None
            return make_pattern({"kind": "dense"})
        if not isinstance(spec, Mapping):
            self.error("pattern", f"{spec!r} is not a table", 'write pattern = { kind = "nm", n = 2, m = 4 }')
            return None
        try:
            return make_pattern(spec)
        except (PatternError, UnknownNameError) as error:
            self.error("pattern", *_halves(error))
            return None

    def choice(self, key: str, default: str, known: Iterable[str]) -> str:
        value = self.spec.get(key, default)
        if value in tuple(known):
            return str(value)
        self.error(key, f"{value!r} is not known", nearest(str(value), known))
        return default

    def text(self, key: str, default: str) -> str:
        value = self.spec.get(key, default)
        if isinstance(value, str) and value:
            return value
        self.error(key, f"{value!r} is not a name", f'write {key} = "{default}"')
        return default

    def epilogue(self) -> tuple[str, ...]:
        value = self.spec.get("epilogue", [])
        if not isinstance(value, list | tuple) or not all(isinstance(step, str) for step in value):
            self.error("epilogue", f"{value!r} is not a list of names", 'write epilogue = ["bias", "relu"]')
            return ()
        unknown = [step for step in value if step not in STEPS]
        for step in unknown:
            self.error("epilogue", f"{step!r} is not known", nearest(step, STEPS))
        if not unknown and (senseless := problem(value)):
            self.error("epilogue", senseless, "list each step once, and at most one activation")
        return tuple(value)

    def seeds(self, default: tuple[str, ...]) -> tuple[str, ...]:
        value = self.spec.get("seeds", default)
        if isinstance(value, list | tuple) and all(isinstance(item, str) and item for item in value):
            return tuple(value)  # none at all: a model makes the first kernel, if there is one
        self.error("seeds", f"{value!r} is not a list of names", f'write seeds = ["{default[0]}"]')
        return default

    def tolerance(self) -> str | dict[str, float]:
        value = self.spec.get("tolerance", "auto")
        if value == "auto":
            return "auto"
        if isinstance(value, Mapping):
            for key in value:
                if key not in ("tau", "frobenius"):
                    self.error(f"tolerance.{key}", "unknown key", nearest(str(key), ("tau", "frobenius")))
            numbers = {k: value.get(k) for k in ("tau", "frobenius")}
            if all(isinstance(v, int | float) and not isinstance(v, bool) and 0 <= v <= 1 for v in numbers.values()):
                return {k: float(v) for k, v in numbers.items()}  # type: ignore[arg-type]
        self.error("tolerance", f"{value!r}", 'write "auto" or { tau = 5e-5, frobenius = 4e-4 }, both within 0..1')
        return "auto"

    def domain(
        self, pattern: Pattern | None, names: tuple[str, ...], fixed: Mapping[str, int]
    ) -> tuple[Expression, ...]:
        if pattern is None:
            return ()
        always = tuple(Expression(f"{name} == {size}") for name, size in fixed.items())
        given = self.spec.get("domain")
        if given is None:
            return (*always, *pattern.default_domain())
        if not isinstance(given, list | tuple):
            self.error("domain", f"{given!r} is not a list", 'write domain = ["K % 64 == 0"]')
            return ()
        conditions = [c for i, text in enumerate(given) if (c := self.condition(f"domain[{i}]", text, names))]
        return tuple(dict.fromkeys((*always, *pattern.mandatory(), *conditions)))

    def condition(self, key: str, text: Any, names: tuple[str, ...]) -> Expression | None:
        try:
            condition = Expression(str(text))
            condition.evaluate(dict.fromkeys(names, 64))
        except ExpressionError as error:
            self.error(key, *_halves(error, 'write a condition on the shape such as "K % 64 == 0"'))
            return None
        return condition

    def shapes(
        self, names: tuple[str, ...], fixed: Mapping[str, int], domain: tuple[Expression, ...]
    ) -> tuple[dict[str, int], ...]:
        given = self.spec.get("shapes")
        tables = [given] if isinstance(given, Mapping) else given
        if not isinstance(tables, list | tuple) or not tables:
            example = "{ " + ", ".join(f"{name} = 4096" for name in names if name not in fixed) + " }"
            self.error("shapes", "missing or not a list of tables", f"write shapes = [{example}]")
            return ()
        shapes: list[dict[str, int]] = []
        for index, table in enumerate(tables):
            key = "shapes" if isinstance(given, Mapping) else f"shapes[{index}]"
            shapes += self.expand(key, {**fixed, **table} if isinstance(table, Mapping) else table, names)
        if len(shapes) > MAX_SHAPES:
            self.error("shapes", f"{len(shapes)} shapes", f"list at most {MAX_SHAPES}")
        distinct = list({tuple(shape.items()): shape for shape in shapes}.values())
        for shape in distinct:
            self.possible(shape, domain)
        return tuple(distinct)

    def expand(self, key: str, table: Any, names: tuple[str, ...]) -> list[dict[str, int]]:
        """A shape, or all combinations where a dimension lists several sizes."""
        if not isinstance(table, Mapping):
            self.error(key, f"{table!r} is not a table", "write { M = 4096, K = 4096, N = 16 }")
            return []
        before = len(self.errors)
        for name in table:
            if name not in names:
                self.error(f"{key}.{name}", "unknown dimension", nearest(str(name), names))
        sizes = [self.sizes(f"{key}.{name}", table.get(name)) for name in names]
        if len(self.errors) > before:
            return []
        return [dict(zip(names, combination, strict=True)) for combination in itertools.product(*sizes)]

    def sizes(self, key: str, value: Any) -> list[int]:
        values = list(value) if isinstance(value, list | tuple) else [value]
        if values and all(type(v) is int and 1 <= v <= MAX_DIMENSION for v in values):
            return values
        problem = "missing" if value is None else f"{value!r} is not a size"
        self.error(key, problem, f"write an integer from 1 to {MAX_DIMENSION} or a list of them")
        return []

    def possible(self, shape: dict[str, int], domain: tuple[Expression, ...]) -> None:
        broken = [condition.text for condition in domain if not condition.evaluate(shape)]
        if broken:
            near = {name: size for name, size in fit_or_same(shape, domain).items() if size != shape[name]}
            fix = f"nearest: {', '.join(f'{k} = {v}' for k, v in near.items())}" if near else "change the shape"
            self.error("shapes", f"{shape} breaks {broken[0]!r} of the domain", fix)
        largest = 4 * max(shape["M"] * shape["K"], shape["K"] * shape["N"], shape["M"] * shape["N"])
        if largest > MAX_OPERAND_BYTES:
            self.error("shapes", f"{shape} needs an operand of {largest / 2**30:.0f} GiB", "keep operands below 8 GiB")

    def free(self, names: tuple[str, ...]) -> tuple[str, ...]:
        value = self.spec.get("free", [name for name in ("N",) if name in names])
        if not isinstance(value, list | tuple):
            self.error("free", f"{value!r} is not a list", f'write free = ["{names[0]}"]')
            return ()
        for name in value:
            if name not in names:
                self.error("free", f"{name!r} is not a dimension", nearest(str(name), names))
        return tuple(str(name) for name in value)

    def reachable(self, domain: tuple[Expression, ...], fixed: Mapping[str, int]) -> None:
        """The small shapes must exist within the domain."""
        if self.errors:
            return
        try:
            for target in (*SMALL_TARGETS, *FULL_TARGETS):
                fit({**target, **fixed}, domain)
        except EmptyDomainError as error:
            self.error("domain", str(error), "allow small shapes, they are what kernels are checked at")


def fit_or_same(shape: dict[str, int], domain: tuple[Expression, ...]) -> dict[str, int]:
    """The nearest shape of the domain, the shape itself if there is none near."""
    try:
        return fit(shape, domain)
    except EmptyDomainError:
        return shape


def _default_seeds(op: Op | None, pattern: Pattern | None, *, plain: bool) -> tuple[str, ...]:
    """The seeds written for a pattern; the dense ones serve any, those called fused any type, layout and epilogue."""
    if op is not None and op.name == "spmv":
        return ("spmv/*",)
    if isinstance(pattern, NmPattern) and pattern.m == 4 and pattern.n <= 2:
        return ("spmm/nm24_*",)
    for kind, seeds in _SEEDS:
        if isinstance(pattern, kind):
            return seeds
    dense = "gemm/dense_*" if plain else "gemm/fused_*"
    return ("spmm/nm_*", dense) if isinstance(pattern, NmPattern) else (dense,)


def _halves(error: Exception, fix: str = "see the documentation of tasks") -> tuple[str, str]:
    """A message "problem; fix" in two."""
    problem, _, rest = str(error).partition("; ")
    return problem, rest or fix
