"""`python -m jetspark.cli` is the program `jetspark`."""

from jetspark.cli.main import main

main()
