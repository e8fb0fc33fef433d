"""`python -m pywaku` is `pywaku`."""

from pywaku.cli import main

main()
