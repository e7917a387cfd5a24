"""`mma` at run time: registers of a group to whole-warp fragments and back, taint carried element by element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fitness.devices.simulator import mma_layout, mma_sparse, tensor
from fitness.devices.simulator.lanes import Context, Value

Array = NDArray[Any]


class Multiply:
    """One `mma` or `mma.sp` instruction as a callable on registers.

    Args:
        shape: "m16n8k16" and the like; a_type ... d_type: element types; selector: metadata selector of
            sparse forms; saturate: `.satfinite`; ordered: `.sp::ordered_metadata`; bits: "and" or "xor" of b1.
    """

    def __init__(
        self,
        shape: str,
        a_type: str,
        b_type: str,
        c_type: str,
        d_type: str,
        sparse: bool,
        selector: int,
        saturate: bool,
        ordered: bool,
        bits: str = "",
    ) -> None:
        #: Shapes m8n8kK are the upper half of m16n8kK, with zeros below.
        self.half = shape.startswith("m8n8")
        self.bits = bits
        self.shape, self.types = shape.replace("m8n8", "m16n8"), (a_type, b_type, c_type, d_type)
        self.sparse, self.selector, self.saturate, self.ordered = sparse, selector, saturate, ordered
        self.line, self.text = 0, ""

    def rehearse(self, counts: Sequence[int]) -> None:
        """Run once on zeros, so that a combination that is not modelled shows when code is generated.

        Raises:
            UnsupportedShape: not modelled.
        """
        wide = self.types[0] == "f64"
        zero = np.zeros((1, 32), dtype=np.float64 if wide else np.uint32)
        c = np.zeros((1, 32), dtype=np.float32) if self.types[2] == "f32" else zero
        metadata = np.full((1, 32), 0x44444444, dtype=np.uint32)
        if self.half and (self.sparse or counts[2] != 2):
            raise mma_layout.UnsupportedShape(f"mma {self.shape}, its upper half")
        self._multiply([zero] * counts[0], [zero] * counts[1], [c] * counts[2], metadata)

    def _multiply(
        self, a: Sequence[Array], b: Sequence[Array], c: Sequence[Array], metadata: Array
    ) -> tuple[Array, ...]:
        a_type, b_type, c_type, d_type = self.types
        if self.half:
            a, c = _above_zeros(a, c)
        if self.bits:
            result = tensor.mma_bits(self.shape, self.bits, a, b, c)
            return result[:2] if self.half else result
        if self.sparse:
            return mma_sparse.mma_sp(
                self.shape,
                a_type,
                b_type,
                c_type,
                a,
                b,
                c,
                metadata,
                self.selector,
                saturate=self.saturate,
                d_type=d_type,
            )
        result = tensor.mma(self.shape, a_type, b_type, c_type, a, b, c, saturate=self.saturate, d_type=d_type)
        return result[:2] if self.half else result

    def __call__(
        self, machine: Any, context: Context, values: tuple[tuple[Value, ...], ...], marks: tuple[Any, ...]
    ) -> tuple[Value, ...]:
        """Destination registers (and their taints when tracking)."""
        machine.warps.need_whole(context, self.line, self.text)
        a, b, c = ([context.as_warps(v) for v in part] for part in values[:3])
        metadata = context.as_warps(values[3][0]) if self.sparse else np.empty(0)
        if self.ordered and machine.memory.track:
            self._check_order(machine, context, metadata)
        result = tuple(context.from_warps(d) for d in self._multiply(a, b, c, metadata))
        if not machine.memory.track:
            return result
        return result + self._taints(context, marks, len(result))

    def _check_order(self, machine: Any, context: Context, metadata: Array) -> None:
        """Metadata out of order or with equal indices is undefined behaviour: a warning, results are kept."""
        if machine.findings.knows("invalid_metadata", self.line):
            return
        good = mma_sparse.metadata_ordered(self.shape, self.types[0], metadata, self.selector)
        if not good.all():
            lane = context.lanes[32 * int(np.argmin(good))]
            machine.findings.add(
                "invalid_metadata",
                f"the metadata of {machine.memory.where(context, lane)}'s warp are not ascending pairs of distinct "
                "indices, as `mma.sp::ordered_metadata` requires",
                self.line,
                severity="warning",
            )

    @staticmethod
    def _taints_of_half(context: Context, parts: tuple[Array | None, ...]) -> tuple[Value, ...]:
        """For shapes of 8 rows: results of a lane share row g of A and columns 2t and 2t + 1 of B."""
        a, b, c = parts
        groups = context.n // 32
        rows, columns = np.zeros((groups, 8), dtype=bool), np.zeros((groups, 8), dtype=bool)
        if a is not None:
            rows |= a.any(axis=-1).reshape(groups, 8, 4).any(axis=-1)
        if b is not None:
            columns |= b.any(axis=-1).reshape(groups, 8, 4).any(axis=-1)
        lane = np.arange(32)
        found = []
        for place in (0, 1):
            tainted = rows[:, lane // 4] | columns[:, 2 * (lane % 4) + place]
            if c is not None:
                tainted = tainted | c[..., place]
            found.append(np.ascontiguousarray(tainted.reshape(-1)))
        return tuple(found)

    def _taints(self, context: Context, marks: tuple[Any, ...], count: int) -> tuple[Value, ...]:
        if all(part is None or all(m is False for m in part) for part in marks):
            return (False,) * count
        groups = context.n // 32

        def masks(part: Any) -> Array | None:
            if part is None or all(m is False for m in part):
                return None
            return np.stack([np.broadcast_to(m, context.n).reshape(groups, 32) for m in part], axis=-1)

        a, b, c = masks(marks[0]), masks(marks[1]), masks(marks[2])
        k = int(self.shape.rsplit("k", 1)[1])
        bits = mma_layout.TYPES[self.types[0]].bits
        if self.half:
            return self._taints_of_half(context, (a, b, c))
        bad_rows = np.zeros((groups, 16), dtype=bool)
        bad_columns = np.zeros((groups, 8), dtype=bool)
        if a is not None:
            rows, _ = mma_layout.a_fragment(k // 2 if self.sparse else k, bits)
            _spread(bad_rows, a, rows)
        if self.sparse and (metadata := masks(marks[3])) is not None:
            bad_rows |= np.asarray(metadata.any(axis=(1, 2)))[:, None]
        if b is not None:
            _, columns = mma_layout.b_fragment(k, bits)
            _spread(bad_columns, b, columns)
        d_bits = 16 if self.types[3] == "f16" else 32
        rows, columns = mma_layout.c_fragment(d_bits)
        tainted: Array = np.asarray(bad_rows[:, rows[..., 0]] | bad_columns[:, columns].any(axis=-1))
        if c is not None and c.shape[-1] == count:
            tainted |= c
        elif c is not None:
            tainted |= c.any(axis=-1, keepdims=True)
        return tuple(np.ascontiguousarray(tainted[..., place].reshape(-1)) for place in range(count))


def _above_zeros(a: Sequence[Array], c: Sequence[Array]) -> tuple[list[Array], list[Array]]:
    """Registers of A and C of a shape of 8 rows as those of one of 16, whose register 2q + h has row g + 8h."""
    blank = np.zeros_like(a[0])
    return [r for register in a for r in (register, blank)], [*c, *(np.zeros_like(c[0]) for _ in c)]


def _spread(target: Array, marks: Array, index: Array) -> None:
    """target[g, index of element] |= marks[g, lane, register] for every element of the register."""
    group, lane, register = np.nonzero(marks)
    for element in range(index.shape[-1]):
        target[group, index[lane, register, element]] = True
