"""Named regions: what counts as one, and replacing one."""

from __future__ import annotations

import pytest

from mutations.regions import regions, replace_region

SOURCE = """int a;
// region: store(acc, y)
old();
// endregion
int b;
  // region: load(x)
  copy();
  // endregion
"""


def test_regions_have_name_interface_and_text() -> None:
    found = regions(SOURCE)
    assert list(found) == ["store", "load"]
    assert found["store"].interface == "acc, y"
    assert found["store"].text == "old();\n"
    assert found["load"].text == "  copy();\n"


def test_replacing_a_region_leaves_the_rest_alone() -> None:
    changed = replace_region(SOURCE, "store", "new();\nmore();\n")
    assert changed == SOURCE.replace("old();\n", "new();\nmore();\n")
    assert regions(changed)["store"].text == "new();\nmore();\n"


def test_a_region_that_does_not_end_is_none() -> None:
    assert not regions("// region: store(acc)\nold();\n")


def test_a_name_that_occurs_twice_is_ambiguous_and_none() -> None:
    assert "store" not in regions(SOURCE + SOURCE)


def test_an_outer_region_is_none() -> None:
    assert list(regions("// region: outer()\n// region: inner()\n// endregion\n// endregion\n")) == ["inner"]


def test_an_unknown_region_cannot_be_replaced() -> None:
    with pytest.raises(KeyError):
        replace_region(SOURCE, "reduce", "")
