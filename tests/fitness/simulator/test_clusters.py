"""Thread-block clusters: special registers, distributed shared memory, barriers, remote mbarriers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.fitness.simulator.engine import clean, floats, kinds, launch, run

PLACES = """
extern "C" __global__ void places(unsigned* y) {
  unsigned v[12];
  asm volatile("mov.u32 %0, %%cluster_ctaid.x;" : "=r"(v[0]));
  asm volatile("mov.u32 %0, %%cluster_ctaid.y;" : "=r"(v[1]));
  asm volatile("mov.u32 %0, %%cluster_ctaid.z;" : "=r"(v[2]));
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(v[3]));
  asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(v[4]));
  asm volatile("mov.u32 %0, %%clusterid.y;" : "=r"(v[5]));
  asm volatile("mov.u32 %0, %%clusterid.z;" : "=r"(v[6]));
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(v[7]));
  asm volatile("mov.u32 %0, %%nclusterid.x;" : "=r"(v[8]));
  asm volatile("mov.u32 %0, %%nclusterid.y;" : "=r"(v[9]));
  asm volatile("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(v[10]));
  asm volatile("{.reg .pred p; mov.pred p, %%is_explicit_cluster; selp.u32 %0, 1, 0, p;}" : "=r"(v[11]));
  unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  if (threadIdx.x == 0) for (int i = 0; i < 12; i++) y[12 * block + i] = v[i];
}
"""


@pytest.mark.parametrize("cluster", [(1, 1, 1), (2, 1, 1), (1, 2, 1), (2, 2, 2), (4, 1, 1)])
def test_places_in_a_cluster(cluster: tuple[int, int, int]) -> None:
    grid = (4, 4, 2)
    y = {"y": np.zeros(12 * 32, np.uint32)}
    got = clean(run(PLACES, launch("places", grid, 32, "y", cluster=cluster), {}, y)).outputs["y"].reshape(-1, 12)
    for z, yy, x in np.ndindex(2, 4, 4):
        place = [p % c for p, c in zip((x, yy, z), cluster, strict=True)]
        rank = place[0] + cluster[0] * (place[1] + cluster[1] * place[2])
        number = [p // c for p, c in zip((x, yy, z), cluster, strict=True)]
        counts = [4 // cluster[0], 4 // cluster[1]]
        want = [*place, rank, *number, int(np.prod(cluster)), *counts, cluster[0], int(cluster != (1, 1, 1))]
        np.testing.assert_array_equal(got[x + 4 * (yy + 4 * z)], want)


REDUCE = """
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void reduce(const float* x, float* y) {
  __shared__ float sum, parts[4];
  cg::cluster_group cluster = cg::this_cluster();
  float v = x[blockIdx.x * 32 + threadIdx.x];
  for (int i = 16; i; i /= 2) v += __shfl_xor_sync(~0u, v, i);
  if (threadIdx.x == 0) { sum = v; }
  cluster.sync();
  float total = 0;
  for (unsigned r = 0; r < cluster.num_blocks(); r++) total += *cluster.map_shared_rank(&sum, r);
  if (threadIdx.x == 0) cluster.map_shared_rank(parts, 0)[cluster.block_rank()] = total;
  cluster.sync();
  if (threadIdx.x < cluster.num_blocks() && cluster.block_rank() == 0) y[blockIdx.x + threadIdx.x] = parts[threadIdx.x];
}
"""


def test_cooperative_groups_over_a_cluster() -> None:
    x = floats(8 * 32)
    execution = clean(run(REDUCE, launch("reduce", 8, 32, "x", "y", cluster=4), {"x": x}, {"y": np.zeros(8, "f4")}))
    want = np.repeat(x.reshape(2, -1).sum(axis=1), 4)
    np.testing.assert_allclose(execution.outputs["y"], want, rtol=1e-5)


EXCHANGE = """
#include "evo.cuh"
using namespace evo;
extern "C" __global__ void exchange(const float* x, float* y, unsigned* count) {
  __shared__ alignas(16) float tile[128];
  __shared__ unsigned hits;
  uint32_t rank = cluster_rank(), other;
  if (threadIdx.x == 0) hits = 0;
  FIRST
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(other) : "r"(shared_address(tile)), "r"(rank ^ 1));
  float4 v = reinterpret_cast<const float4*>(x)[32 * blockIdx.x + threadIdx.x];
  asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" :: "r"(other + 16 * threadIdx.x), "f"(v.x), "f"(v.y),
               "f"(v.z), "f"(v.w) : "memory");
  uint32_t far;
  asm volatile("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(far) : "r"(shared_address(&hits)));
  asm volatile("red.relaxed.cluster.shared::cluster.add.u32 [%0], 1;" :: "r"(far) : "memory");
  SECOND
  for (int i = threadIdx.x; i < 128; i += 32) y[128 * blockIdx.x + i] = tile[i];
  if (threadIdx.x == 0) count[blockIdx.x] = hits;
}
"""
SYNC = "cluster_arrive(); cluster_wait();"


def exchange(source: str) -> tuple[set[str], np.ndarray, np.ndarray, np.ndarray]:
    x = floats(512)
    outputs = {"y": np.zeros(512, np.float32), "count": np.zeros(4, np.uint32)}
    execution = run(source, launch("exchange", 4, 32, "x", "y", "count", cluster=2), {"x": x}, outputs)
    swapped = x.reshape(2, 2, 128)[:, ::-1].ravel()
    return kinds(execution), execution.outputs["y"], swapped, execution.outputs["count"]


def test_stores_and_reductions_in_other_blocks() -> None:
    found, got, want, count = exchange(EXCHANGE.replace("FIRST", SYNC).replace("SECOND", SYNC))
    assert not found
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(count, [64, 0, 64, 0])


def test_missing_cluster_barriers_are_found() -> None:
    """A block-wide barrier orders nothing between blocks."""
    found, *_ = exchange(EXCHANGE.replace("FIRST", SYNC).replace("SECOND", "__syncthreads();"))
    assert found == {"race"}


def test_a_block_that_never_arrives() -> None:
    source = EXCHANGE.replace("FIRST", "if (rank == 1) return; " + SYNC + "if (rank == 0) cluster_wait();").replace(
        "SECOND", ""
    )
    found, *_ = exchange(source)
    assert found == {"barrier_divergence"}


def test_a_rank_the_cluster_does_not_have() -> None:
    found, *_ = exchange(EXCHANGE.replace("FIRST", SYNC).replace("SECOND", SYNC).replace("rank ^ 1", "rank + 1"))
    assert found == {"out_of_bounds"}


REMOTE = """
#include "evo.cuh"
using namespace evo;
// Block 0 of each cluster gathers: the others announce their values at its mbarrier, early ones may run ahead.
extern "C" __global__ void gather(const float* x, float* y) {
  __shared__ float slots[2][4];
  __shared__ alignas(8) uint64_t full, empty;
  uint32_t rank = cluster_rank();
  if (threadIdx.x == 0) { mbarrier_init(&full, 4); mbarrier_init(&empty, 1); fence_mbarrier_init(); }
  cluster_arrive(); cluster_wait();
  for (int i = 0; i < 6; i++) {
    if (threadIdx.x == 0) {
      if (i >= 1) mbarrier_wait(&empty, (i - 1) & 1);
      uint32_t to;
      asm volatile("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(to) : "r"(shared_address(&slots[i & 1][rank])));
      asm volatile("st.shared::cluster.f32 [%0], %1;" :: "r"(to), "f"(x[i * gridDim.x + blockIdx.x]) : "memory");
      mbarrier_arrive_cluster(&full, 0);
    }
    if (rank == 0 && threadIdx.x == 0) {
      mbarrier_wait(&full, i & 1);
      float sum = 0;
      for (int j = 0; j < 4; j++) sum += slots[i & 1][j];
      y[i * gridDim.x / 4 + blockIdx.x / 4] = sum;
      for (int j = 0; j < 4; j++) mbarrier_arrive_cluster(&empty, j);
    }
  }
  cluster_arrive(); cluster_wait();
}
"""


def test_mbarriers_of_other_blocks() -> None:
    x = floats(6 * 8)
    execution = clean(run(REMOTE, launch("gather", 8, 32, "x", "y", cluster=4), {"x": x}, {"y": np.zeros(12, "f4")}))
    np.testing.assert_allclose(execution.outputs["y"], x.reshape(12, 4).sum(axis=1), rtol=1e-5)


def test_sampled_clusters_run_whole() -> None:
    """Clusters along y: the blocks of one are not adjacent in the grid."""
    y = {"y": np.zeros(12 * 32, np.uint32)}
    execution = run(PLACES, launch("places", (4, 4, 2), 32, "y", cluster=(1, 2, 1)), {}, y, blocks=((1, 5, 26, 30),))
    written = execution.written["y"].reshape(-1, 12).all(axis=1)
    np.testing.assert_array_equal(np.flatnonzero(written), [1, 5, 26, 30])
    np.testing.assert_array_equal(execution.outputs["y"].reshape(-1, 12)[[1, 5, 26, 30], 3], [0, 1, 0, 1])


RELAXED = 'asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); cluster_wait();'


@pytest.mark.parametrize(
    ("fence", "sync", "found"),
    [
        ("fence_mbarrier_init();", RELAXED, set()),
        ("", "cluster_arrive(); cluster_wait();", set()),
        ('asm volatile("fence.acq_rel.cluster;" ::: "memory");', RELAXED, set()),
        ('asm volatile("fence.acq_rel.cta;" ::: "memory");', RELAXED, {"race"}),
        ("", RELAXED, {"race"}),
    ],
)
def test_other_blocks_see_an_mbarrier_once_its_initialisation_is_released(
    fence: str, sync: str, found: set[str]
) -> None:
    source = REMOTE.replace("fence_mbarrier_init();", fence).replace("cluster_arrive(); cluster_wait();", sync, 1)
    x = floats(6 * 8)
    execution = run(source, launch("gather", 8, 32, "x", "y", cluster=4), {"x": x}, {"y": np.zeros(12, "f4")})
    assert kinds(execution) == found
    np.testing.assert_allclose(execution.outputs["y"], x.reshape(12, 4).sum(axis=1), rtol=1e-5)
    if found:
        assert "fence.mbarrier_init" in execution.findings[0].suggestion
