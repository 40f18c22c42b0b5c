"""Run the command line as ``python -m aimlib``."""

from aimlib.cli import main

raise SystemExit(main())
