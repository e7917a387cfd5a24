"""Gate 2 rejects includes and allocation by name, notes flags, and leaves everything else alone."""

from __future__ import annotations

import time

import pytest

from fitness.kernel import parse_kernel
from fitness.outcome import Finding
from fitness.screen import screen

HEADER = """/*---
format = "dense"
[[launch]]
kernel = "f"
grid = [1]
block = [32]
args = ["Y"]
---*/
"""


def findings(body: str) -> tuple[Finding, ...]:
    return screen(parse_kernel(HEADER + body))


@pytest.mark.parametrize(
    "body",
    [
        "#include <cuda_fp16.h>\n",
        '#include "evo.cuh"\n',
        "#  include <cuda/std/array>  // fine\n",
        "#include <cub/block/block_reduce.cuh>\n",
        "#include <cooperative_groups/reduce.h>\n",
        "// #include <vector>\n/* new int; malloc(3) */",
        'const char* s = "new malloc( <<<";',
        "int renewed = 1; int newest = 2; float freely(float); int allocate(int);",
        "a << b; x <<= 3;",
        "new (storage) T();",
    ],
)
def test_accepts(body: str) -> None:
    assert findings(body) == ()


@pytest.mark.parametrize(
    ("body", "kind", "line"),
    [
        ("\n#include </etc/passwd>\n", "forbidden_include", 10),
        ('#include "/etc/passwd"\n', "forbidden_include", 9),
        ('#include "../secret.h"\n', "forbidden_include", 9),
        ("#include <cuda/std/../../../etc/passwd>\n", "forbidden_include", 9),
        ("#include <vector>\n", "forbidden_include", 9),
        ("#include PATH\n", "forbidden_include", 9),
        ("%:include <vector>\n", "forbidden_include", 9),
        ("#include_next <cuda_fp16.h>\n", "forbidden_include", 9),
        ("#include/**/<vector>\n", "forbidden_include", 9),
        ("#" + "/**/" * 10_000 + "include <vector>\n", "forbidden_include", 9),
        ("#inclu\\\nde <vector>\n", "forbidden_include", 9),
        ("a\\\nb\n#include <vector>\n", "forbidden_include", 11),
        ('const char* s = R"(")/*)";\n#include <vector>\n/* */', "forbidden_include", 10),
        ("int x = 1'0 + '/*';\n#include <vector>\n/* */", "forbidden_include", 10),
        ("auto x = u'/*';\n#include <vector>\n/* */", "forbidden_include", 10),
        ("int* p = new int[3];", "device_allocation", 9),
        ("\n\nvoid* p = malloc(3);", "device_allocation", 11),
        ("f<<<1, 1>>>();", "dynamic_parallelism", 9),
        ("cudaLaunchDevice(0);", "dynamic_parallelism", 9),
    ],
)
def test_rejects(body: str, kind: str, line: int) -> None:
    found = findings(body)
    assert [(f.kind, f.line, f.severity) for f in found] == [(kind, line, "error")]
    assert found[0].suggestion


@pytest.mark.parametrize("unclosed", ["/* ", 'R"(', "'", '"'])
def test_hostile_sources_take_no_time(unclosed: str) -> None:
    started = time.process_time()
    findings(unclosed * (60_000 // len(unclosed)))
    assert time.process_time() - started < 2


@pytest.mark.parametrize("piece", ["#/*", "/*#", "#/**/ ", '#include "a"\n', "<<<\n", "__has_include("])
def test_many_offences_take_no_time_and_few_words(piece: str) -> None:
    started = time.process_time()
    found = findings(piece * (60_000 // len(piece)))
    assert time.process_time() - started < 10
    assert len(found) <= 10


def test_nearest_header_is_suggested() -> None:
    assert "cuda_fp16.h" in findings("#include <cuda_fp16.hpp>\n")[0].suggestion


@pytest.mark.parametrize("word", ["evict_last", "createpolicy", "globaltimer", "nanosleep", "trap"])
def test_flags_in_inline_ptx_are_notes(word: str) -> None:
    found = findings(f'asm volatile("x.{word}.y;");')
    assert [(f.kind, f.severity, f.line) for f in found] == [("flag", "note", 9)]
    assert word in found[0].message


def test_flags_in_code_and_not_in_comments() -> None:
    assert [f.kind for f in findings("long t = clock64();")] == ["flag"]
    assert findings("// clock64 printf\n") == ()
    assert findings("int clockwise, my_trap_count;") == ()
