"""The driver layer of a real card: PyCUDA for context, memory, streams and events; cuda-bindings for what it lacks.

PyCUDA binds neither cuLaunchKernelEx (clusters, cooperative and programmatic launches) nor graphs nor tensor
maps, and gives no raw function handle, so modules are loaded and launched through `cuda.bindings.driver`, in
the same primary context (which PyTorch's runtime shares too).
"""

from __future__ import annotations

import atexit
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fitness.devices.cuda.tensormap import encode
from fitness.devices.device import BufferRef, Entry, ResolvedLaunch, ResolvedTensorMap

Array = NDArray[Any]

NUMPY_TYPES: Final[Mapping[str, Any]] = {
    "u64": np.uint64, "b64": np.uint64, "s64": np.int64, "u32": np.uint32, "b32": np.uint32, "s32": np.int32,
    "f32": np.float32, "f64": np.float64, "u16": np.uint16, "b16": np.uint16, "s16": np.int16, "u8": np.uint8,
    "s8": np.int8,
}  # fmt: skip
"""PTX type of a parameter -> NumPy type of its bytes."""

_DEFAULT_SHARED: Final = 48 * 1024  # more dynamic shared memory has to be allowed by an attribute
_SPIN_S: Final = 200e-6  # waits shorter than this are polled without a pause


class CudaError(RuntimeError):
    """A driver call failed. `code`: the CUresult; `name`: its name without the prefix ("ILLEGAL_ADDRESS")."""

    def __init__(self, what: str, code: int, name: str) -> None:
        super().__init__(f"{what}: {name.lower().replace('_', ' ')} (CUDA error {code})")
        self.code, self.name = code, name


class HangError(RuntimeError):
    """Work on the stream did not end in time; the context cannot be used any more."""


def checked(result: tuple[Any, ...], what: str) -> Any:
    """The value of a driver call.

    Raises:
        CudaError: it failed.
    """
    status = result[0]
    if int(status) != 0:
        raise CudaError(what, int(status), status.name.removeprefix("CUDA_ERROR_"))
    return result[1] if len(result) == 2 else result[1:]


class Card:
    """One card: its primary context, one stream, and everything that is done on it.

    Args:
        index: as the driver counts; `CUDA_VISIBLE_DEVICES` chooses among several.

    Raises:
        ImportError: PyCUDA or cuda-bindings is not installed.
        CudaError: no driver or no card.
    """

    def __init__(self, index: int = 0) -> None:
        import pycuda.driver as pycuda
        from cuda.bindings import driver

        self.cu: Any = driver
        checked(driver.cuInit(0), "cuInit")
        pycuda.init()
        self._pycuda: Any = pycuda
        self._device = pycuda.Device(index)
        self._context = self._device.retain_primary_context()
        self._context.push()
        atexit.register(self._leave)
        self._stream = pycuda.Stream()
        self.stream = int(self._stream.handle)
        self.name = str(self._device.name())
        self.capability = tuple(int(part) for part in self._device.compute_capability())
        self.sms = int(self._device.get_attribute(pycuda.device_attribute.MULTIPROCESSOR_COUNT))
        self.bus_id = str(self._device.pci_bus_id())

    def _leave(self) -> None:
        """PyCUDA aborts the process at clean-up if its context is still pushed."""
        self._context.pop()

    # -- memory -------------------------------------------------------------------------------------------------------

    def allocate(self, size: int) -> int:
        """Device memory of at least `size` bytes, aligned to 256.

        Raises:
            MemoryError: the card has no room.
        """
        return self.allocate_exactly(max(size, 256))

    def allocate_exactly(self, size: int) -> int:
        """The same, of exactly `size` > 0 bytes, so that a tool sees the first byte past the end."""
        status, pointer = self.cu.cuMemAlloc(size)
        if int(status) == 2:
            raise MemoryError(f"the card has no {size >> 20} MiB left")
        checked((status, pointer), "cuMemAlloc")
        return int(pointer)

    def free(self, pointer: int) -> None:
        """Give memory back."""
        checked(self.cu.cuMemFree(pointer), "cuMemFree")

    def free_bytes(self) -> int:
        """Device memory nobody holds."""
        return int(self._pycuda.mem_get_info()[0])

    def upload(self, pointer: int, array: Array) -> None:
        """Copy a contiguous host array to the card."""
        if array.nbytes:
            assert array.flags.c_contiguous
            checked(self.cu.cuMemcpyHtoDAsync(pointer, array.ctypes.data, array.nbytes, self.stream), "cuMemcpyHtoD")
            checked(self.cu.cuStreamSynchronize(self.stream), "upload")

    def download(self, pointer: int, size: int) -> NDArray[np.uint8]:
        """`size` bytes of the card's memory; what was enqueued before has to be complete (see `wait`)."""
        host = np.empty(size, np.uint8)
        if size:
            checked(self.cu.cuMemcpyDtoH(host.ctypes.data, pointer, size), "cuMemcpyDtoH")
        return host

    def copy(self, target: int, source: int, size: int) -> None:
        """Enqueue a copy within the card."""
        checked(self.cu.cuMemcpyDtoDAsync(target, source, size, self.stream), "cuMemcpyDtoD")

    def fill(self, pointer: int, value: int, size: int) -> None:
        """Enqueue setting `size` bytes to one value."""
        if size:
            checked(self.cu.cuMemsetD8Async(pointer, value, size, self.stream), "cuMemset")

    # -- waiting ------------------------------------------------------------------------------------------------------

    def event(self) -> Any:
        """A new event with timing."""
        return checked(self.cu.cuEventCreate(0), "cuEventCreate")

    def record(self, event: Any) -> None:
        """Record an event; in a capture it becomes a node whose time can be read after each replay."""
        status, capturing = self.cu.cuStreamIsCapturing(self.stream)[:2]
        inside = int(checked((status, capturing), "cuStreamIsCapturing")) != 0
        checked(self.cu.cuEventRecordWithFlags(event, self.stream, 1 if inside else 0), "cuEventRecord")

    def elapsed_us(self, begin: Any, end: Any) -> float:
        """Microseconds between two recorded events."""
        return 1e3 * float(checked(self.cu.cuEventElapsedTime(begin, end), "cuEventElapsedTime"))

    def wait(self, timeout_s: float) -> None:
        """Wait for everything on the stream.

        Raises:
            HangError: it takes longer. The context cannot be used any more; nor after
            CudaError: something on the stream failed.
        """
        began = time.perf_counter()
        while int(status := self.cu.cuStreamQuery(self.stream)[0]) == 600:  # CUDA_ERROR_NOT_READY
            spent = time.perf_counter() - began
            if spent > timeout_s:
                raise HangError(f"no end within {timeout_s:g} s")
            if spent > _SPIN_S:
                time.sleep(50e-6)
        checked((status, None), "kernel")

    # -- graphs -------------------------------------------------------------------------------------------------------

    def capture(self, enqueue: Callable[[], None]) -> Any:
        """An executable graph of what `enqueue` puts on the stream."""
        cu = self.cu
        mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        checked(cu.cuStreamBeginCapture(self.stream, mode), "cuStreamBeginCapture")
        with contextlib.ExitStack() as broken_off:
            broken_off.callback(cu.cuStreamEndCapture, self.stream)
            enqueue()
            broken_off.pop_all()
        graph = checked(cu.cuStreamEndCapture(self.stream), "cuStreamEndCapture")
        try:
            return checked(cu.cuGraphInstantiate(graph, 0), "cuGraphInstantiate")
        finally:
            cu.cuGraphDestroy(graph)

    def replay(self, graph: Any) -> None:
        """Enqueue an executable graph."""
        checked(self.cu.cuGraphLaunch(graph, self.stream), "cuGraphLaunch")

    def drop(self, graph: Any) -> None:
        """Destroy an executable graph."""
        checked(self.cu.cuGraphExecDestroy(graph), "cuGraphExecDestroy")


class Module:
    """A cubin on the card."""

    def __init__(self, card: Card, cubin: bytes) -> None:
        self.card = card
        self._cubin = cubin
        self._module = checked(card.cu.cuModuleLoadData(cubin), "cuModuleLoadData")
        self._functions: dict[str, Any] = {}

    def function(self, name: str) -> Any:
        """The handle of an entry."""
        if name not in self._functions:
            found = self.card.cu.cuModuleGetFunction(self._module, name.encode())
            self._functions[name] = checked(found, f"entry {name}")
        return self._functions[name]

    def variable(self, name: str) -> tuple[int, int] | None:
        """(address, bytes) of a module variable; None where the module does not export it."""
        status, pointer, size = self.card.cu.cuModuleGetGlobal(self._module, name.encode())
        if int(status) == 500:  # CUDA_ERROR_NOT_FOUND
            return None
        checked((status, pointer), f"variable {name}")
        return int(pointer), int(size)

    def allow(self, launch: ResolvedLaunch) -> None:
        """Set the attributes a launch needs: dynamic shared memory above 48 KiB, and the carve-out asked for."""
        cu, function = self.card.cu, self.function(launch.entry)
        kinds = cu.CUfunction_attribute
        if launch.shared > _DEFAULT_SHARED:
            kind = kinds.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            checked(cu.cuFuncSetAttribute(function, kind, launch.shared), "dynamic shared memory")
        if launch.carveout is not None:
            kind = kinds.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
            checked(cu.cuFuncSetAttribute(function, kind, launch.carveout), "shared memory carve-out")

    def resident_blocks(self, launch: ResolvedLaunch) -> int:
        """Blocks of a launch that one SM holds, by the driver's occupancy calculator."""
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        found = self.card.cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(
            self.function(launch.entry), threads, launch.shared
        )
        return int(checked(found, "occupancy"))

    def launch(self, launch: ResolvedLaunch, arguments: Sequence[Array]) -> None:
        """Enqueue one launch; `arguments` hold the parameters' bytes (see `argument_bytes`)."""
        cu, config = self.card.cu, self.card.cu.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = launch.block
        config.sharedMemBytes, config.hStream = launch.shared, self.card.stream
        attributes = self._attributes(launch)
        config.attrs, config.numAttrs = attributes, len(attributes)
        pointers = np.array([value.ctypes.data for value in arguments], np.uint64)
        function = self.function(launch.entry)
        checked(cu.cuLaunchKernelEx(config, function, pointers.ctypes.data, 0), f"launch of {launch.entry}")

    def _attributes(self, launch: ResolvedLaunch) -> list[Any]:
        ids = self.card.cu.CUlaunchAttributeID
        attributes = []
        if launch.cluster != (1, 1, 1):
            value = self.card.cu.CUlaunchAttributeValue()
            value.clusterDim.x, value.clusterDim.y, value.clusterDim.z = launch.cluster
            attributes.append(self._attribute(ids.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, value))
        if launch.cooperative:
            value = self.card.cu.CUlaunchAttributeValue()
            value.cooperative = 1
            attributes.append(self._attribute(ids.CU_LAUNCH_ATTRIBUTE_COOPERATIVE, value))
        if launch.pdl:
            value = self.card.cu.CUlaunchAttributeValue()
            value.programmaticStreamSerializationAllowed = 1
            attributes.append(self._attribute(ids.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, value))
        return attributes

    def _attribute(self, kind: Any, value: Any) -> Any:
        attribute = self.card.cu.CUlaunchAttribute()
        attribute.id, attribute.value = kind, value
        return attribute

    def close(self) -> None:
        """Unload it."""
        checked(self.card.cu.cuModuleUnload(self._module), "cuModuleUnload")


def argument_bytes(entry: Entry, launch: ResolvedLaunch, addresses: Mapping[str, int]) -> tuple[Array, ...]:
    """The parameters of a launch as arrays of their own types, for buffers at these addresses."""
    values: list[Array] = []
    for argument, parameter in zip(launch.arguments, entry.parameters, strict=True):
        if isinstance(argument, ResolvedTensorMap):
            values.append(encode(argument, addresses[argument.buffer]))
        elif isinstance(argument, BufferRef):
            values.append(np.array([addresses[argument.name]], np.uint64))
        else:
            values.append(_scalar(argument.value, np.dtype(NUMPY_TYPES[parameter.type])))
    return tuple(values)


def _scalar(value: float, dtype: np.dtype[Any]) -> Array:
    if dtype.kind == "f":
        return np.array([value], dtype)
    # PTX does not tell signed from unsigned: the bits are what counts
    wrapped = int(value) % (1 << (8 * dtype.itemsize))
    return np.frombuffer(wrapped.to_bytes(dtype.itemsize, "little"), dtype).copy()
