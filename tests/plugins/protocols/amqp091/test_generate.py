"""The generated methods are what definition.toml says today."""

from plugins.protocols.amqp091.generate import generated_files, main


def test_committed_methods_are_those_of_the_definition() -> None:
    for path, text in generated_files().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run the generator"


def test_check_is_content() -> None:
    assert main(["--check"]) == 0
