"""Addresses of a PTX module's variables: shared and local offsets per entry, module variables in the generic map."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fitness.devices.simulator.ptx import Function, Instruction, Module, symbols_in
from fitness.devices.simulator.regions import LOCAL_START, MODULE_BASE, PARAM_WINDOW, SHARED_START
from fitness.devices.simulator.variables import Variable


def _aligned(offset: int, align: int) -> int:
    return -(-offset // align) * align


@dataclass(frozen=True)
class ModuleVariable:
    """A `.global` or `.const` variable and its fixed virtual address."""

    variable: Variable
    address: int


def module_variables(module: Module) -> dict[str, ModuleVariable]:
    """Addresses of module-level `.global` and `.const` variables, each with guard space after it."""
    placed = {}
    at = MODULE_BASE + 256
    for variable in module.variables:
        if variable.space in ("global", "const"):
            at = _aligned(at, max(variable.align, 16))
            placed[variable.name] = ModuleVariable(variable, at)
            at += variable.bytes + 256
    return placed


@dataclass(frozen=True)
class Layout:
    """Where an entry's symbols lie.

    Attributes:
        symbols: name -> (space, address within the space; generic address for global and const).
        shared_static: bytes of static shared memory (dynamic memory begins there, aligned).
        dynamic_start: offset of `extern __shared__` arrays; local_bytes: per thread; parameter_bytes.
        parameters: name -> (offset, size, type).
    """

    symbols: Mapping[str, tuple[str, int]]
    shared_static: int
    dynamic_start: int
    local_bytes: int
    parameters: Mapping[str, tuple[int, int, str]]
    parameter_bytes: int


def layout(module: Module, function: Function) -> Layout:
    """Lay out the variables one entry can name."""
    symbols: dict[str, tuple[str, int]] = {}
    for name, placed in module_variables(module).items():
        symbols[name] = (placed.variable.space, placed.address)
    used = _names_in(function)
    shared = local = 0
    external: list[Variable] = []
    for variable in [*module.variables, *function.variables]:
        own = variable in function.variables
        if variable.space == "shared":
            if variable.external or variable.bytes == 0:
                external.append(variable)
            elif own or variable.name in used:
                shared = _aligned(shared, variable.align)
                symbols[variable.name] = ("shared", SHARED_START + shared)
                shared += variable.bytes
        elif variable.space == "local":
            local = _aligned(local, variable.align)
            symbols[variable.name] = ("local", LOCAL_START + local)
            local += variable.bytes
    dynamic = _aligned(shared, max([16, *(v.align for v in external)]))
    for variable in external:
        symbols[variable.name] = ("shared", SHARED_START + dynamic)
    parameters = {}
    at = 0
    for parameter in function.parameters:
        at = _aligned(at, max(parameter.align, 1))
        parameters[parameter.name] = (at, parameter.bytes, parameter.type)
        symbols[parameter.name] = ("param", PARAM_WINDOW + at)
        at += parameter.bytes
    return Layout(symbols, shared, dynamic if external else shared, local, parameters, at)


def _names_in(function: Function) -> set[str]:
    names: set[str] = set()
    for item in function.body:
        if isinstance(item, Instruction):
            names |= symbols_in(item.operands)
    return names
