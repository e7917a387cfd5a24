"""`mbarrier`: phases, counts, waiting lanes, misuse."""

from __future__ import annotations

import numpy as np
import pytest

from fitness.devices.simulator.phases import Mbarriers
from tests.fitness.simulator.engine import clean, floats, kinds, launch, run

PRELUDE = '#include "evo.cuh"\nusing namespace evo;\n'

EXCHANGE = (
    PRELUDE
    + """
extern "C" __global__ void exchange(const float* x, float* y, int rounds) {
  __shared__ float tile[128];
  __shared__ alignas(8) uint64_t full, empty;
  int t = threadIdx.x % 128, role = threadIdx.x / 128;
  if (threadIdx.x == 0) { mbarrier_init(&full, 128); mbarrier_init(&empty, 128); }
  __syncthreads();
  for (int i = 0; i < rounds; i++) {
    if (role == 0) {
      mbarrier_wait(&empty, (i & 1) ^ 1);
      tile[t] = x[(blockIdx.x * rounds + i) * 128 + t];
      mbarrier_arrive(&full);
    } else {
      mbarrier_wait(&full, i & 1);
      y[(blockIdx.x * rounds + i) * 128 + t] = tile[127 - t];
      mbarrier_arrive(&empty);
    }
  }
}
"""
)


@pytest.mark.parametrize("swap", [False, True])
def test_producers_and_consumers_alternate(swap: bool) -> None:
    """Whichever of them runs first."""
    source = EXCHANGE.replace("role == 0", "role == 1") if swap else EXCHANGE
    x = floats(3 * 5 * 128)
    execution = clean(
        run(source, launch("exchange", 3, 256, "x", "y", 5), {"x": x}, {"y": np.zeros(x.size, np.float32)})
    )
    np.testing.assert_array_equal(execution.outputs["y"], x.reshape(15, 128)[:, ::-1].ravel())


@pytest.mark.parametrize("removed", ["mbarrier_wait(&full, i & 1);", "mbarrier_wait(&empty, (i & 1) ^ 1);"])
def test_a_missing_wait_is_a_race(removed: str) -> None:
    """A consumer that does not wait for the tile, a producer that does not wait for its release.

    The numbers of the second are right here, for the groups happen to alternate.
    """
    x = floats(5 * 128)
    y = {"y": np.zeros(x.size, np.float32)}
    execution = run(EXCHANGE.replace(removed, ""), launch("exchange", 1, 256, "x", "y", 5), {"x": x}, y)
    assert "race" in kinds(execution)


STATES = (
    PRELUDE
    + """
extern "C" __global__ void states(unsigned* y) {
  __shared__ alignas(8) uint64_t bar;
  if (threadIdx.x == 0) mbarrier_init(&bar, 96);
  __syncthreads();
  uint64_t state; uint32_t left, done, before = 7, b = shared_address(&bar);
  asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(state) : "r"(b) : "memory");
  asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(left) : "l"(state));
  asm volatile("{.reg .pred p; mbarrier.test_wait.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
               : "=r"(before) : "r"(b), "l"(state) : "memory");
  if (threadIdx.x < 16)
    asm volatile("mbarrier.arrive.noComplete.shared::cta.b64 %0, [%1], 1;" : "=l"(state) : "r"(b) : "memory");
  __syncthreads();
  if (threadIdx.x >= 16 && threadIdx.x < 32)
    asm volatile("mbarrier.arrive_drop.shared::cta.b64 %0, [%1], 1;" : "=l"(state) : "r"(b) : "memory");
  asm volatile("{.reg .pred p; W: mbarrier.try_wait.shared::cta.b64 p, [%0], %1, 100; @!p bra W;}"
               :: "r"(b), "l"(state) : "memory");
  asm volatile("{.reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p;"
               "@!p bra W;}" : "=r"(done) : "r"(b) : "memory");
  __syncthreads();
  uint64_t fresh;
  asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(fresh) : "r"(b) : "memory");
  uint32_t next;
  asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(next) : "l"(fresh));
  y[threadIdx.x] = left + (before << 8) + (done << 16) + (next << 20);
}
"""
)


def test_states_counts_and_dropping() -> None:
    """64 + 16 + 16 arrivals make a phase of 96; dropping 16 makes the next one of 80."""
    execution = clean(run(STATES, launch("states", 2, 64, "y"), {}, {"y": np.zeros(128, np.uint32)}))
    y = execution.outputs["y"][:64]
    np.testing.assert_array_equal(y & 0xFF, 96 - np.arange(64))
    np.testing.assert_array_equal(y >> 8 & 0xFF, 0)
    np.testing.assert_array_equal(y >> 16 & 0xF, 1)
    np.testing.assert_array_equal(y >> 20, 80 - np.arange(64))


TX = (
    PRELUDE
    + """
extern "C" __global__ void tx(float* y, int announced, int brought, int arrivals) {
  __shared__ alignas(8) uint64_t bar;
  if (threadIdx.x == 0) mbarrier_init(&bar, 1);
  __syncthreads();
  uint32_t b = shared_address(&bar);
  if (threadIdx.x == 0) {
    if (arrivals) mbarrier_arrive_expect_tx(&bar, announced);
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], 16;" :: "r"(b) : "memory");
    asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], %1;" :: "r"(b), "r"(brought) : "memory");
  }
  mbarrier_wait(&bar, 0);
  y[threadIdx.x] = 1.0f;
}
"""
)


def test_transactions() -> None:
    """The phase ends when what was announced has come, and not before."""
    y = {"y": np.zeros(64, np.float32)}
    clean(run(TX, launch("tx", 2, 32, "y", 64, 80, 1), {}, y))
    for announced, brought, arrivals in ((64, 64, 1), (64, 96, 1), (0, 16, 0)):
        execution = run(TX, launch("tx", 2, 32, "y", announced, brought, arrivals), {}, y)
        assert (execution.ended, kinds(execution)) == ("fault", {"deadlock"})
        assert "bytes are missing" in execution.findings[0].message
        assert execution.findings[0].line


MISUSE = (
    PRELUDE
    + """
extern "C" __global__ void misuse(float* y) {
  __shared__ alignas(8) uint64_t bar[2];
  if (threadIdx.x == 0) { mbarrier_init(&bar[0], 32); }
  __syncthreads();
  BODY
  y[threadIdx.x] = 1.0f;
}
"""
)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("mbarrier_arrive(&bar[1]);", "not initialised"),
        ("if (threadIdx.x == 0) bar[0] = 5; __syncthreads(); mbarrier_arrive(&bar[0]);", "overwritten"),
        ("if (threadIdx.x == 0) mbarrier_init(&bar[0], 1);", "initialised twice"),
        ("if (threadIdx.x == 0) mbarrier_inval(&bar[0]); __syncthreads(); mbarrier_arrive(&bar[0]);",
         "not initialised"),
        ("if (threadIdx.x == 0) { mbarrier_init(&bar[1], 1); mbarrier_arrive_expect_tx(&bar[1], 8); "
         "mbarrier_arrive(&bar[1]); }", "awaits 0 more arrivals"),
        ("if (threadIdx.x == 0) mbarrier_init(&bar[1], 0);", "count 0"),
        ("mbarrier_arrive(&bar[0]); asm volatile(\"mbarrier.arrive.noComplete.b64 _, [%0], 32;\" :: \"l\"(&bar[0]));",
         ".noComplete"),
        ("mbarrier_arrive((uint64_t*)((char*)&bar[0] + 4));", "not a multiple of 8"),
        ("y[0] = (float)*(volatile unsigned*)&bar[0];", "uninitialised value"),
    ],
)  # fmt: skip
def test_misuse_is_found(body: str, said: str) -> None:
    execution = run(MISUSE.replace("BODY", body), launch("misuse", 2, 32, "y"), {}, {"y": np.zeros(64, np.float32)})
    assert execution.findings, body
    assert said in execution.findings[0].message, execution.findings[0].message
    assert execution.findings[0].line


def test_an_initialisation_nobody_was_told_of() -> None:
    """Other warps use the mbarrier with no barrier after its initialisation."""
    source = MISUSE.replace("BODY", "mbarrier_arrive(&bar[0]);").replace("__syncthreads();", "").replace("32)", "64)")
    execution = run(source, launch("misuse", 1, 64, "y"), {}, {"y": np.zeros(64, np.float32)})
    assert kinds(execution) == {"race"}
    assert "since it was initialised" in execution.findings[0].message


APART = (
    PRELUDE
    + """
extern "C" __global__ void apart(const float* x, float* y) {
  __shared__ alignas(128) float tile[4][32];
  __shared__ alignas(8) uint64_t full[4];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 4; ++i) mbarrier_init(full + i, 1);
    fence_mbarrier_init();
    for (int i = 0; i < 4; ++i) {
      mbarrier_arrive_expect_tx(full + i, 128);
      bulk_load(tile[i], x + 32 * i, 128, full + i);
    }
  }
  __syncthreads();
  mbarrier_wait(full + warp, 0);
  y[32 * warp + lane] = tile[warp][lane];
}
"""
)


def test_warps_may_wait_together_for_mbarriers_of_their_own() -> None:
    """What lands for the first of them ended the waiting of some, and the others were looked for among the rest."""
    x = floats(128)
    execution = clean(run(APART, launch("apart", 1, 128, "x", "y"), {"x": x}, {"y": np.zeros(128, np.float32)}))
    np.testing.assert_array_equal(execution.outputs["y"], x)


def test_lanes_of_many_blocks_are_woken_once_an_instruction(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bulk copy of every block ends a phase in each; nobody sleeps through a phase that follows at once."""
    text = """
#include "evo.cuh"
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ alignas(16) float tile[4][4];
  __shared__ alignas(8) uint64_t full;
  if (threadIdx.x == 0) { evo::mbarrier_init(&full, 1); evo::fence_mbarrier_init(); }
  __syncthreads();
  for (int i = 0; i < 4; i++) {
    if (threadIdx.x == 32) {
      evo::mbarrier_arrive_expect_tx(&full, 16);
      evo::bulk_load(tile[i], x + 4 * (4 * blockIdx.x + i), 16, &full);
    }
    evo::mbarrier_wait(&full, i & 1);
    __syncthreads();
  }
  if (threadIdx.x < 16) y[16 * blockIdx.x + threadIdx.x] = tile[threadIdx.x / 4][threadIdx.x % 4];
}"""
    woken = 0
    wake = Mbarriers.wake

    def counted(barriers: Mbarriers) -> None:
        nonlocal woken
        woken += 1
        wake(barriers)

    monkeypatch.setattr(Mbarriers, "wake", counted)
    x = floats(16 * 9)
    for checks in (True, False):
        woken = 0
        started = launch("k", 9, 64, "x", "y")
        execution = run(text, started, {"x": x}, {"y": np.zeros_like(x)}, races=checks, uninitialised=checks)
        np.testing.assert_array_equal(clean(execution).outputs["y"], x)
    assert woken == 4  # not four for each of nine blocks
