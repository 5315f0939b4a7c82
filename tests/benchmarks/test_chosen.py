"""Which scenarios ``--only`` chooses."""

from __future__ import annotations

from click.testing import CliRunner

from benchmarks.__main__ import main


def test_a_name_that_ends_with_an_underscore_chooses_all_that_begin_so() -> None:
    listed = CliRunner().invoke(main, ["--list", "--only", "roundtrip_"]).output
    assert [line.partition(":")[0] for line in listed.splitlines()] == [
        "roundtrip_poll",
        "roundtrip_xmode",
        "roundtrip_inprocess",
        "roundtrip_tasks",
    ]


def test_a_row_chooses_its_scenario() -> None:
    listed = CliRunner().invoke(main, ["--list", "--only", "fanout_10"]).output
    assert [line.partition(":")[0] for line in listed.splitlines()] == ["fanout"]


def test_a_name_that_is_only_the_beginning_of_others_is_refused() -> None:
    refused = CliRunner().invoke(main, ["--list", "--only", "roundtrip"])
    assert refused.exit_code == 2
    assert "no scenario or row 'roundtrip'" in refused.output
