"""Vendor routines through PyTorch. W is (M, K); X is (N, K) for layout "col", (K, N) for "row"; Y likewise."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable
from typing import Any

from fitness.baselines import NotApplicableError, Run
from fitness.task import Task


def _plain(task: Task) -> None:
    """Refuses what a bare product does not compute."""
    if task.epilogue:
        raise NotApplicableError("it computes no epilogue")
    if task.x_layout != task.y_layout:
        raise NotApplicableError("it wants X and Y in the same layout")


def _product(w: Any, x: Any, task: Task) -> Run:
    import torch

    _plain(task)
    if task.dtype != task.out_dtype:
        raise NotApplicableError(f"it gives no {task.out_dtype} of {task.dtype}")
    first, second = (x, w.t()) if task.x_layout == "col" else (w, x)
    out = torch.empty((first.shape[0], second.shape[1]), dtype=w.dtype, device=w.device)
    return lambda: torch.mm(first, second, out=out)


def cublas(w: Any, x: Any, task: Task) -> Run:
    """Dense product by cuBLAS (torch.mm), W with its zeros."""
    import torch

    run = _product(w, x, task)

    def enqueue() -> Any:
        torch.backends.cuda.preferred_blas_library("cublas")
        return run()

    return enqueue


def cublaslt(w: Any, x: Any, task: Task) -> Run:
    """The same by cuBLASLt."""
    import torch

    run = _product(w, x, task)

    def enqueue() -> Any:
        torch.backends.cuda.preferred_blas_library("cublaslt")
        return run()

    return enqueue


def cusparselt(w: Any, x: Any, task: Task) -> Run:
    """2:4 product by cuSPARSELt, by the fastest of its algorithms.

    The library's own search serves only to learn how many there are: through PyTorch it ends with an internal error
    where the result is wanted in column layout. A call takes a quarter of a second of host time (seen on an H200),
    so each algorithm is called once, captured, and replayed.
    """
    _plain(task)
    pattern = dict(task.pattern or {})
    if (pattern.get("kind"), pattern.get("n"), pattern.get("m")) != ("nm", 2, 4):
        raise NotApplicableError("it takes 2:4 patterns only")
    if task.dtype not in ("float16", "bfloat16") or task.x_layout != "col":
        raise NotApplicableError("only float16 and bfloat16, column layout, are set up")
    import torch

    compressed = torch._cslt_compress(w)

    def product(algorithm: int) -> Any:
        return torch._cslt_sparse_mm(compressed, x.t(), alg_id=algorithm, transpose_result=True)

    key = (tuple(w.shape), tuple(x.shape), w.dtype)
    if key not in _algorithms:
        count = torch._C._cusparselt.mm_search(compressed, x.t(), None, None, None, False)[3]
        _algorithms[key] = _fastest_algorithm(product, count)
    algorithm = _algorithms[key]
    return lambda: product(algorithm)


_algorithms: dict[tuple[object, ...], int] = {}
_TRIES = 20


def _fastest_algorithm(product: Callable[[int], Any], count: int) -> int:
    """Number of the algorithm with the least median time on the card.

    Raises:
        NotApplicableError: none works; says what the library answered last.
    """
    times: dict[int, float] = {}
    said = "it has none"
    for algorithm in range(count):
        try:
            times[algorithm] = _captured_ms(functools.partial(product, algorithm))
        except RuntimeError as error:  # not every number is an algorithm for every shape
            said = str(error).splitlines()[0]
    if not times:
        raise NotApplicableError(f"no algorithm of the library works: {said}")
    return min(times, key=lambda algorithm: times[algorithm])


def _captured_ms(call: Run) -> float:
    """Median milliseconds of a call, captured on torch's current stream and replayed."""
    import torch

    graph = torch.cuda.CUDAGraph()
    graph.capture_begin(capture_error_mode="relaxed")
    try:
        held = call()
    finally:
        graph.capture_end()
    samples = []
    for _ in range(_TRIES):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        samples.append(begin.elapsed_time(end))
    del held
    return float(statistics.median(samples))


def _sparse_product(rows: Any, x: Any, task: Task) -> Run:
    columns = x.t() if task.x_layout == "col" else x

    def enqueue() -> Any:
        y = rows @ columns
        return y.t() if task.y_layout == "col" else y

    return enqueue


def torch_csr(w: Any, x: Any, task: Task) -> Run:
    """CSR product as PyTorch calls cuSPARSE; of 16-bit operands it is less accurate than tasks ask for."""
    _plain(task)
    rows = w.to_sparse_csr()
    return _sparse_product(rows, x, task)


def torch_bsr(w: Any, x: Any, task: Task) -> Run:
    """Block-sparse product by PyTorch's BSR kernels."""
    _plain(task)
    pattern = dict(task.pattern or {})
    if pattern.get("kind") != "block":
        raise NotApplicableError("it takes block patterns only")
    rows = w.to_sparse_bsr(tuple(pattern["shape"]))
    return _sparse_product(rows, x, task)


def torch_compile(w: Any, x: Any, task: Task) -> Run:
    """The dense product as torch.compile makes it (max-autotune, without its own graphs)."""
    import torch

    _plain(task)
    first, second = (x, w.t()) if task.x_layout == "col" else (w, x)
    compiled = torch.compile(torch.mm, mode="max-autotune-no-cudagraphs", dynamic=False)
    return lambda: compiled(first, second)
