"""Vendor routines through PyTorch; operands as `Given` says, Y in the task's layout."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable
from typing import Any

from fitness.baselines import Given, NotApplicableError, Run
from fitness.task import Task


def _plain(task: Task) -> None:
    """Refuses what a bare product does not compute."""
    if task.epilogue:
        raise NotApplicableError("it computes no epilogue")
    if task.x_layout != task.y_layout:
        raise NotApplicableError("it wants X and Y in the same layout")


def _factors(given: Given) -> tuple[Any, Any]:
    """The two sides of torch.mm that give Y in the task's layout."""
    task = given.task
    if task.x_layout != task.y_layout:
        raise NotApplicableError("it wants X and Y in the same layout")
    if task.dtype != task.out_dtype:
        raise NotApplicableError(f"it gives no {task.out_dtype} of {task.dtype}")
    return (given.x, given.w.t()) if task.x_layout == "col" else (given.w, given.x)


def _product(given: Given) -> Run:
    import torch

    _plain(given.task)
    first, second = _factors(given)
    out = torch.empty((first.shape[0], second.shape[1]), dtype=given.w.dtype, device=given.w.device)
    return lambda: torch.mm(first, second, out=out)


def _preferring(library: str, run: Run) -> Run:
    """The same with PyTorch told which library to call."""
    import torch

    def enqueue() -> Any:
        torch.backends.cuda.preferred_blas_library(library)
        return run()

    return enqueue


def cublas(given: Given) -> Run:
    """Dense product by cuBLAS (torch.mm), W with its zeros."""
    return _preferring("cublas", _product(given))


def cublaslt(given: Given) -> Run:
    """The same by cuBLASLt, which computes a bias with ReLU or GELU (by tanh) in its epilogue."""
    import torch

    steps = given.task.epilogue
    if not steps:
        return _preferring("cublaslt", _product(given))
    if steps[0] != "bias" or steps[1:] not in ((), ("relu",), ("gelu_tanh",)) or given.task.x_layout != "col":
        raise NotApplicableError("of epilogues it computes bias, with relu or gelu_tanh behind, in column layout")
    first, second = _factors(given)
    if len(steps) == 1:
        return _preferring("cublaslt", lambda: torch.addmm(given.bias, first, second))
    gelu = steps[1] == "gelu_tanh"
    return _preferring("cublaslt", lambda: torch._addmm_activation(given.bias, first, second, use_gelu=gelu))


def _layer(given: Given) -> Callable[[Any, Any], Any]:
    """The product of two factors and the task's epilogue as PyTorch operations, Y in the task's layout.

    A bias right behind the product is torch.addmm's, as in torch.nn.Linear; each other step is an operation of its own.
    """
    import torch

    bias = given.bias if given.task.y_layout == "col" or given.bias is None else given.bias[:, None]
    operations: dict[str, Callable[[Any], Any]] = {
        "bias": lambda y: y + bias,
        "residual": lambda y: y + given.residual,
        "scale": lambda y: y * given.factor,
        "relu": torch.relu,
        "gelu": torch.nn.functional.gelu,
        "gelu_tanh": functools.partial(torch.nn.functional.gelu, approximate="tanh"),
        "silu": torch.nn.functional.silu,
    }
    names = given.task.epilogue
    first = names[:1] == ("bias",)
    steps = [operations[step] for step in names[first:]]

    def layer(left: Any, right: Any) -> Any:
        y = torch.addmm(bias, left, right) if first else torch.mm(left, right)
        for step in steps:
            y = step(y)
        return y

    return layer


def eager(given: Given) -> Run:
    """The dense product and its epilogue as separate PyTorch operations, each rounded to the output's type."""
    if not given.task.epilogue:
        raise NotApplicableError("without an epilogue it is cublas")
    first, second = _factors(given)
    layer = _layer(given)
    return lambda: layer(first, second)


def torch_compile(given: Given) -> Run:
    """The dense product and its epilogue as torch.compile makes them (max-autotune, without its own graphs)."""
    import torch

    first, second = _factors(given)
    compiled = torch.compile(_layer(given), mode="max-autotune-no-cudagraphs", dynamic=False)
    return lambda: compiled(first, second)


def cusparselt(given: Given) -> Run:
    """2:4 product by cuSPARSELt, by the fastest of its algorithms.

    The library's own search serves only to learn how many there are: through PyTorch it ends with an internal error
    where the result is wanted in column layout. A call takes a quarter of a second of host time (seen on an H200),
    so each algorithm is called once, captured, and replayed.
    """
    task, w, x = given.task, given.w, given.x
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
_ROUNDS, _TRIES = 5, 12  # rounds over all algorithms, replays of each in a round


def _fastest_algorithm(product: Callable[[int], Any], count: int) -> int:
    """Number of the algorithm with the least median time on the card, the algorithms taking turns.

    Raises:
        NotApplicableError: none works; says what the library answered last.
    """
    calls: dict[int, Run] = {}
    said = "it has none"
    for algorithm in range(count):
        try:
            calls[algorithm] = _captured(functools.partial(product, algorithm))
        except RuntimeError as error:  # not every number is an algorithm for every shape
            said = str(error).splitlines()[0]
    if not calls:
        raise NotApplicableError(f"no algorithm of the library works: {said}")
    samples: dict[int, list[float]] = {algorithm: [] for algorithm in calls}
    for _ in range(_ROUNDS):
        for algorithm, call in calls.items():
            samples[algorithm] += _milliseconds(call)
    return min(samples, key=lambda algorithm: statistics.median(samples[algorithm]))


def _captured(call: Run) -> Run:
    """Replays a call captured on torch's current stream."""
    import torch

    graph = torch.cuda.CUDAGraph()
    graph.capture_begin(capture_error_mode="relaxed")
    try:
        held = call()
    finally:
        graph.capture_end()

    def replay(_held: Any = held) -> None:
        graph.replay()

    return replay


def _milliseconds(call: Run) -> list[float]:
    """Times of `_TRIES` calls, after one that is not counted."""
    import torch

    call()
    taken = []
    for _ in range(_TRIES):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        taken.append(float(begin.elapsed_time(end)))
    return taken


def _sparse_product(rows: Any, x: Any, task: Task) -> Run:
    columns = x.t() if task.x_layout == "col" else x

    def enqueue() -> Any:
        y = rows @ columns
        return y.t() if task.y_layout == "col" else y

    return enqueue


def torch_csr(given: Given) -> Run:
    """CSR product as PyTorch calls cuSPARSE; of 16-bit operands it is less accurate than tasks ask for."""
    _plain(given.task)
    return _sparse_product(given.w.to_sparse_csr(), given.x, given.task)


def torch_bsr(given: Given) -> Run:
    """Block-sparse product by PyTorch's BSR kernels."""
    _plain(given.task)
    pattern = dict(given.task.pattern or {})
    if pattern.get("kind") != "block":
        raise NotApplicableError("it takes block patterns only")
    rows = given.w.to_sparse_bsr(tuple(pattern["shape"]))
    return _sparse_product(rows, given.x, given.task)
