from __future__ import annotations

import re
from pathlib import Path

import pytest

from fitness.compile import CompileError, compile_source
from mutations.llm.lookup import Passage, References, reference_folder, references
from mutations.testing import nm24_task


def test_the_passage_with_the_rare_word_comes_first() -> None:
    found = References(
        [Passage("a", "load load load store"), Passage("b", "load metadata selector"), Passage("c", "store")]
    ).search("load selector")
    assert [passage.source for passage in found] == ["b", "a"]


def test_nothing_is_found_for_words_that_are_nowhere() -> None:
    assert References([Passage("a", "x")]).search("y") == ()
    assert References([]).search("y") == ()


def test_seeds_layouts_and_cards_are_searched() -> None:
    known = references(nm24_task())
    assert any("ordered_metadata" in passage.text for passage in known.search("ordered_metadata selector"))
    sources = {passage.source for passage in known.search("ldmatrix cp.async swizzle", limit=20)}
    assert any(source.startswith("seed ") for source in sources)
    assert all(len(passage.text) < 3000 for passage in known.search("the", limit=50))


def test_own_folders_are_searched_with_their_licence(tmp_path: Path) -> None:
    (tmp_path / "LICENSE").write_text("\nMIT License\n...")
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "trick.cu").write_text("__device__ int zebra_trick();")
    (tmp_path / "data.bin").write_text("zebra_trick")
    outside = tmp_path.parent / "outside.cu"
    outside.write_text("zebra_trick outside")
    (tmp_path / "link.cu").symlink_to(outside)
    (found,) = references(nm24_task(), [str(tmp_path)]).search("zebra_trick")
    assert found.source == f"{tmp_path.name}/kernels/trick.cu (MIT License)"


def test_a_folder_that_is_none_is_said() -> None:
    with pytest.raises(NotADirectoryError, match=r"llm.references: /nowhere/at/all is no folder"):
        references(nm24_task(), ["/nowhere/at/all"])


@pytest.mark.parametrize(
    ("words", "page"),
    [("cp.async commit wait_group stage", "async"), ("shared memory banks swizzle", "memory"), ("shfl mask", "warps")],
)
def test_our_reference_is_searched(words: str, page: str) -> None:
    found = references(nm24_task()).search(words, limit=12)
    assert f"reference {page} (Apache-2.0)" in [passage.source for passage in found]


@pytest.mark.parametrize("page", sorted(reference_folder().glob("*.md")), ids=lambda page: page.stem)
def test_the_examples_of_our_reference_compile(page: Path) -> None:
    examples = re.findall(r"```cuda\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert examples
    for example in examples:
        assert not isinstance(compiled := compile_source(example, arch="sm_90a"), CompileError), compiled
