"""The command line: `pywaku node`, `pywaku demo`. What a command needs is imported when it runs."""

from __future__ import annotations

import sys

import click

from pywaku._version import __version__
from pywaku.cli.demo import demo
from pywaku.cli.node import node


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="pywaku", message="%(prog)s %(version)s")
def cli() -> None:
    """The Waku v2 messaging stack for Python."""


cli.add_command(node)
cli.add_command(demo)


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 it failed, 2 it was asked for wrongly."""
    try:
        cli.main(prog_name="pywaku", standalone_mode=False)
    except click.exceptions.Exit as exit_:
        sys.exit(exit_.exit_code)
    except click.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except Exception as error:
        from pywaku.errors import InvalidInput, WakuError

        if not isinstance(error, WakuError):
            raise
        click.echo(f"pywaku: {error}", err=True)
        sys.exit(2 if isinstance(error, InvalidInput) else 1)
