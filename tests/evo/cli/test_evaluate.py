"""`evo evaluate` on the simulator: verdict, profile, sanitizer; flags and mistakes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import seeds
from evo.cli.group import cli
from evo.cli.verdicts import Verdict, as_json, lines
from fitness.devices.cuda.endtoend import CallCost
from fitness.devices.cuda.nsys import KernelTime
from fitness.feedback import EndToEnd
from fitness.kernel import load_kernel
from fitness.outcome import Gate, Timed

SHAPE = "task.shapes=[{M=64,K=64,N=16}]"
SCALAR = str(next(iter(seeds.seed_paths("spmm/nm24_scalar"))))
REDTEAM = Path(__file__).parents[2] / "redteam"


def evaluate(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["evaluate", *arguments, "--set", SHAPE, "--set", "device.kind=simulator"])
    return result.exit_code, result.output


def test_a_valid_kernel_has_times_profile_and_clean_sanitizers() -> None:
    code, said = evaluate(SCALAR, "--profile", "--sanitize")
    assert code == 0, said
    assert "verdict   valid, gate timing" in said
    assert "us modelled" in said
    assert "profile   M=64 K=64 N=16: " in said
    assert "smsp__inst_executed.sum" in said
    assert "sanitizer nothing found" in said


def test_a_wrong_kernel_fails_with_a_reason() -> None:
    code, said = evaluate(str(REDTEAM / "skips_last_k_tile.cu"), "--json", "--sanitize")
    assert code == 1
    verdict = json.loads(said)
    assert (verdict["valid"], verdict["verdict"], verdict["gate"]) == (False, "WrongResult", "small_run")
    assert verdict["findings"][0]["wrong"]["pattern"]
    assert verdict["sanitized"] is not None
    assert verdict["profiles"] is None


def test_json_of_a_valid_kernel() -> None:
    code, said = evaluate(SCALAR, "--json")
    assert code == 0, said
    verdict = json.loads(said)
    assert verdict["device"] == "simulator"
    assert verdict["timings"][0]["clock"] == "modelled"
    assert verdict["code_key"]


def test_a_trace_shows_registers_and_addresses_of_one_thread() -> None:
    code, said = evaluate(SCALAR, "--depth", "compile", "--trace", "line=27", "thread=1,2", "block=0", "N=5")
    assert code == 0, said
    assert "trace     line 27: if (m >= M || n >= N) return;" in said
    assert "thread (1, 2, 0) of block (0, 0, 0), M=128 K=256 N=5" in said
    assert "| reads %r2 = 2, %r10 = 5 | gives %p2 = false" in said


def test_a_trace_as_json() -> None:
    code, said = evaluate(SCALAR, "--depth", "compile", "--json", "--trace", "line=42 thread=3,1,0 block=1,0,0")
    assert code == 0, said
    trace = json.loads(said)["trace"]
    assert (trace["line"], trace["thread"], trace["block"]) == (42, [3, 1, 0], [1, 0, 0])
    (store,) = [step for step in trace["steps"] if step["text"].startswith("st.global")]
    assert store["places"][0].startswith("Y[")
    assert trace["source"].startswith("y[n * ldy + m]")


@pytest.mark.parametrize("kernel", [SCALAR, "spmm/nm24_scalar"])
def test_compiling_alone_is_a_depth(kernel: str) -> None:
    code, said = evaluate(kernel, "--depth", "compile")
    assert code == 0, said
    assert "gate compile" in said


def test_the_experiment_is_a_word_or_an_option() -> None:
    of_csr = ("spmm/csr_rows", "csr_spmm", "--depth", "compile")
    code, said = evaluate(*of_csr)
    assert code == 0, said
    assert (code, said) == evaluate("spmm/csr_rows", "--task", "csr_spmm", "--depth", "compile")
    assert "the task asks for col" in evaluate("spmm/csr_rows", "--depth", "compile")[1]  # nm24, where none is named
    for arguments in (["nm24", "smoke"], ["nm24", "--task", "smoke"]):
        code, said = evaluate(SCALAR, *arguments)
        assert code == 2
        assert "one kernel and one experiment" in said
    assert "no such file" in evaluate(SCALAR, "nowhere")[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing.cu"], "nothing.cu: no such file, and no seed"),
        (["spmm/nm24_scaler"], "did you mean spmm/nm24_scalar?"),
        (["spmm/nm24_*"], "seeds are called so"),
        ([SCALAR, "--param", "NOPE=3"], "--param NOPE=3: the kernel has"),
        ([SCALAR, "--task", "nowhere"], "no such file"),
        ([SCALAR, "--depth", "compile", "--trace", "line=28"], "no instruction comes from line 28; some come from"),
        ([SCALAR, "--depth", "compile", "--trace", "line=42", "block=99"], "there is no thread (0, 0, 0) of block (99"),
        ([SCALAR, "--trace", "line=x"], "--trace line=x: numbers of line, thread, block, M, N, K are wanted"),
        ([SCALAR, "--trace", "thread=0"], "--trace needs one source line"),
        ([SCALAR, "--trace", "line=1", "thread=1,2,3,4"], "at most three numbers"),
        ([SCALAR, "--trace", "line=1", "N=0"], "one size of at least 1"),
        ([SCALAR, "--end-to-end"], "--end-to-end measures, and there is no card"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], words: str) -> None:
    code, said = evaluate(*arguments)
    assert code == 1
    assert words in said
    assert "Traceback" not in said


def test_the_cost_of_calls_is_told_in_words_and_as_json() -> None:
    calls = CallCost(upload_s=0.004, launch_us=6.2, stream_us=12.5, graph_us=11.9, request_us=88.0)
    shape = {"M": 64, "K": 64, "N": 16}
    told = EndToEnd(shape, 0.125, calls, (KernelTime("spmm", 1, 12.3),), "")
    kernel = load_kernel(Path(SCALAR))
    verdict = Verdict(kernel, "cuda", "H200", Timed(Gate.TIMING), None, None, end_to_end=(told,))
    text = "\n".join(lines(verdict))
    assert "W packed in 125 ms and uploaded in 4 ms, once; a call takes 6.2 us of the host" in text
    assert "nsys    spmm: 1 x 12.3 us" in text
    assert json.loads(json.dumps(as_json(verdict)))["end_to_end"][0]["calls"]["graph_us"] == 11.9
    without = dataclasses.replace(told, nsys=(), no_nsys="nsys is not installed")
    assert "no report: nsys is not installed" in lines(dataclasses.replace(verdict, end_to_end=(without,)))[-1]


def test_occupancy_is_told_where_it_is_known() -> None:
    assert "occupancy" not in evaluate(SCALAR, "--depth", "small_run")[1]
    assert "occupancy" in evaluate(SCALAR)[1]
