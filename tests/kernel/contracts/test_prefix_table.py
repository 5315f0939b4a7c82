"""Prefix tables: what is not about look-ups, which the tests of key tries have."""

from __future__ import annotations

from kernel.contracts.prefix_table import PrefixTable


def test_a_table_of_prefixes_has_a_size_and_values() -> None:
    table: PrefixTable[bytes, str] = PrefixTable()
    assert (len(table), table.values(), table.at(b"")) == (0, set(), ())
    for prefix, value in ((b"", "all"), (b"a", "one"), (b"a", "one"), (b"a", "other")):
        table.add(prefix, value)
    assert (len(table), table.values(), list(table.at(b"a"))) == (
        2,
        {"all", "one", "other"},
        ["one", "other"],
    )
    table.remove(b"a", "one")
    assert list(table.at(b"a")) == ["one", "other"]
    table.remove(b"", "all")
    assert (len(table), table.values()) == (1, {"one", "other"})
