"""Commands that ask engines of any kind, with the options that the kinds bring (``EngineKind.asked``).

The plugins are loaded only for a command line that has more than the command's own options, and for help:
to load them takes longer than all else that such a command does.
"""

from __future__ import annotations

from typing import Any

import click

from kernel.contracts.kinds import Asked

_ANNOUNCED = "announced options"


class AskingCommand(click.Command):
    """A command whose function gets in ``asked`` which options of engine kinds were given, and their values.

    Defaults are left out: each engine has those of its kind.
    """

    def __init__(self, *arguments: Any, operation: str, after: str, **more: Any) -> None:
        """``operation``: of engines; ``after``: the parameter behind which help shows their options."""
        super().__init__(*arguments, **more)
        self._operation = operation
        self._after = after

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line, and put what kinds have announced into ``asked``."""
        own = {name for option in self.params for name in option.opts}
        if all(argument.partition("=")[0] in own for argument in args if argument.startswith("--")):
            ctx.meta[_ANNOUNCED] = []
        rest = super().parse_args(ctx, args)
        given = {_asked_name(option): option.name for option in self._announced(ctx) if option.name}
        values = {name: (ctx.params.pop(key), ctx.get_parameter_source(key)) for name, key in given.items()}
        ctx.params["asked"] = {
            name: value
            for name, (value, source) in values.items()
            if value is not None and source is not click.core.ParameterSource.DEFAULT
        }
        return rest

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the command's own parameters, with those of the kinds among them."""
        own = super().get_params(ctx)
        place = 1 + next(number for number, option in enumerate(own) if option.name == self._after)
        return [*own[:place], *self._announced(ctx), *own[place:]]

    def _announced(self, ctx: click.Context) -> list[click.Option]:
        # Made once for each command line: click tells parameters apart by identity.
        if _ANNOUNCED not in ctx.meta:
            # Imported here: it is loaded already, but it is the one that finds this command.
            from kernel.cli.main import registry

            ctx.meta[_ANNOUNCED] = [_option(each) for each in registry().asked(self._operation).values()]
        announced: list[click.Option] = ctx.meta[_ANNOUNCED]
        return announced


def _option(asked: Asked) -> click.Option:
    # With a prefix, so that it has the name of no parameter of the command's function.
    names = [f"--{asked.name}", f"asked_{asked.name.replace('-', '_')}"]
    return click.Option(
        names, metavar=asked.metavar, default=asked.default, show_default=True, help=asked.help
    )


def _asked_name(option: click.Option) -> str:
    return option.opts[0].removeprefix("--")
