"""The documentation holds: its examples run, its links lead somewhere, its options exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from pywaku.cli import cli

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")])
EXAMPLES = [
    pytest.param(code, id=f"{page.name}-{number}")
    for page in PAGES
    for number, code in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.S | re.M), 1)
]


@pytest.mark.parametrize("code", EXAMPLES)
def test_examples_run(code: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout, "an example shows something"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_that_exist(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not missing


def test_every_option_of_node_is_documented_and_no_other() -> None:
    shown = CliRunner().invoke(cli, ["node", "--help"]).output
    offered = set(re.findall(r"--[a-z][a-z0-9-]*", shown)) - {"--help"}
    table = (ROOT / "docs" / "operate.md").read_text().split("## Options")[1].split("## Exit codes")[0]
    documented = set(re.findall(r"--[a-z][a-z0-9-]*", table))
    assert documented == offered


def test_readme_names_make_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    named = set(re.findall(r"^    make ([a-z -]+?)(?:  +#.*)?$", (ROOT / "README.md").read_text(), re.M))
    assert {name for group in named for name in group.split()} <= targets


def test_readme_s_first_screen_holds_what_it_is_and_the_two_commands() -> None:
    screen = "\n".join((ROOT / "README.md").read_text().splitlines()[:16])
    for text in ("Waku v2 messaging stack for Python", "make demo", "make test"):
        assert text in screen
