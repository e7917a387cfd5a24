"""The include allow-list: what is refused, however it is written, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

import fitness
from fitness.compile import preludes
from fitness.compiler.includes import PRELUDES, include_findings

PASSWD = '"/etc/passwd"'


@pytest.mark.parametrize(
    "source",
    [
        f"#include {PASSWD}",
        f"  #  include {PASSWD}",
        f"%:include {PASSWD}",
        f"??=include {PASSWD}",
        f"#inc\\\nlude {PASSWD}",
        f"#\\\n\\\ninclude {PASSWD}",
        f"# /* a\n b */ include /* c */ {PASSWD}",
        f"#define P {PASSWD}\n#include P",
        f"#include_next {PASSWD}",
        f"#import {PASSWD}",
        f"#embed {PASSWD}",
        f"#if __has_include({PASSWD})\n#endif",
        "#if __has_include P\n#endif",
        '#include "../secret.h"',
        "#include <cuda/std/../../../../../../etc/passwd>",
        "#include <cub/cub.cuh>",
        "#include <stdint.h>",
        "#include <cuda.h>",
        '#include "evo.cuh.h"',
        # Attempts to make a comment, literal or splice hide a live directive.
        f"// comment \\ \n#include {PASSWD}",
        f"// comment \r#include {PASSWD}",
        f"int a = 1'000; // '\n#include {PASSWD}\n// '",
        f'auto s = R"x(/*)x";\n#include {PASSWD}\n// */',
        f'auto s = "/*";\n#include {PASSWD}\n// */',
        f'char c = \'"\'; /* " */\n#include {PASSWD}\n/* " */',
        f"/* a *\\\n/ \n#include {PASSWD}\n/* */",
    ],
)
def test_refused(source: str) -> None:
    findings = include_findings(source)
    assert findings
    assert {finding.kind for finding in findings} == {"forbidden_include"}


@pytest.mark.parametrize(
    "source",
    [
        "#include <cuda_fp16.h>",
        '#include "evo.cuh"',
        "#  include <mma.h> // fragments",
        "#include <cooperative_groups.h>\n#include <cooperative_groups/reduce.h>",
        "#include <cuda/barrier>\n#include <cuda/std/array>\n#include <cub/block/block_reduce.cuh>",
        "// #include <cuda_runtime.h> is not needed",
        "/* #include <vector>\n   #include <map> */ int a;",
        "int included = 1; // include <vector>",
        "float include(float x);",
        '#if __has_include("evo.cuh")\n#endif',
    ],
)
def test_allowed(source: str) -> None:
    assert include_findings(source) == ()


def test_line_is_the_source_line_behind_splices() -> None:
    (finding,) = include_findings("int a \\\n = 1;\n\n#include <vector>\n")
    assert finding.line == 4


@pytest.mark.parametrize("character", ["\0", "\ud800"])
def test_text_that_nvrtc_could_not_be_given_is_refused(character: str) -> None:
    (finding,) = include_findings(f"int a;\n{character}#include <vector>")
    assert (finding.kind, finding.line) == ("bad_source", 2)


def test_what_lies_in_our_own_folder_can_be_included() -> None:
    folder = Path(fitness.__file__).parent / "include"
    assert set(PRELUDES) == {path.name for path in folder.iterdir()} == set(preludes())
    assert include_findings("".join(f'#include "{name}"\n' for name in PRELUDES)) == ()
