"""`python -m pywaku.cli` is `pywaku`."""

from pywaku.cli import main

main()
