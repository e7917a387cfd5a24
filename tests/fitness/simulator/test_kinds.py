"""Kinds and SASS weights of PTX opcodes."""

from __future__ import annotations

import pytest

from fitness.devices.simulator.kinds import classify, issues, make_op


@pytest.mark.parametrize(
    ("opcode", "kind"),
    [
        ("ld.global.nc.v4.u32", "load_global"),
        ("ld.shared.v2.f32", "load_shared"),
        ("ld.shared::cta.u32", "load_shared"),
        ("ld.param.u64", "load_const"),
        ("st.local.f32", "store_local"),
        ("st.global.v4.f32", "store_global"),
        ("cp.async.cg.shared.global", "cp_async"),
        ("cp.async.commit_group", "cp_async_commit"),
        ("cp.async.wait_group", "cp_async_wait"),
        ("cp.async.wait_all", "cp_async_wait"),
        ("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes", "bulk"),
        ("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes", "bulk"),
        ("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group", "bulk_store"),
        ("cp.async.bulk.commit_group", "other"),
        ("cp.async.mbarrier.arrive.noinc.shared::cta.b64", "mbarrier"),
        ("mbarrier.arrive.expect_tx.shared::cta.b64", "mbarrier"),
        ("mbarrier.try_wait.parity.shared::cta.b64", "mbarrier_wait"),
        ("wgmma.mma_async.sp.sync.aligned.m64n64k32.f32.f16.f16", "wgmma_sp:m64n64k32:f16"),
        ("wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.u8", "wgmma:m64n64k32:s8"),
        ("wgmma.commit_group.sync.aligned", "wgmma_commit"),
        ("wgmma.wait_group.sync.aligned", "wgmma_wait"),
        ("st.shared::cluster.v4.f32", "store_cluster"),
        ("barrier.cluster.wait.acquire.aligned", "cluster_wait"),
        ("ldmatrix.sync.aligned.m8n8.x4.shared.b16", "ldmatrix"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "mma:m16n8k16:f16"),
        ("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", "mma:m16n8k16:f16"),
        ("mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e5m2.f16", "mma:m16n8k32:e4m3"),
        ("mma.sp.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32", "mma_sp:m16n8k32:bf16"),
        ("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "mma_sp:m16n8k32:f16"),
        ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32", "mma:m16n16k16:f16"),
        ("wmma.load.a.sync.aligned.row.m16n16k16.shared.f16", "load_shared"),
        ("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16", "wgmma:m64n64k16:f16"),
        ("wgmma.fence.sync.aligned", "fence"),
        ("fma.rn.f32", "fp32"),
        ("fma.rn.f16x2", "fp16"),
        ("fma.rn.f64", "fp64"),
        ("ex2.approx.ftz.f32", "sfu"),
        ("mad.lo.s32", "int"),
        ("setp.lt.s32", "int"),
        ("cvt.rn.f16x2.f32", "convert"),
        ("cvt.u64.u32", "int"),
        ("cvt.f32.f16", "fp16"),
        ("cvt.f32.bf16", "int"),
        ("cvt.rzi.s32.f32", "convert"),
        ("bar.sync", "barrier"),
        ("shfl.sync.bfly.b32", "shuffle"),
        ("red.global.add.f32", "atomic_global"),
        ("atom.shared.add.u32", "atomic_shared"),
        ("bra.uni", "branch"),
        ("mov.b32", "other"),
    ],
)
def test_kind_of_an_opcode(opcode: str, kind: str) -> None:
    assert classify(opcode) == kind


def test_moves_and_parameter_reads_issue_nothing_and_divisions_many() -> None:
    assert issues("mov.u32") == issues("ld.param.u64") == issues("cvta.to.global.u64") == 0
    assert issues("fma.rn.f32") == issues("mul.wide.s32") == 1
    assert issues("div.s32") > 10
    assert issues("div.rn.f32") > issues("div.full.f32")


def test_a_generic_load_takes_the_space_it_turned_out_to_have() -> None:
    op = make_op("ld.u32", site=3, kind="load_shared")
    assert (op.kind, op.site, op.issues) == ("load_shared", 3, 1.0)
