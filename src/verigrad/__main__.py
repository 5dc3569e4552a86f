"""``python -m verigrad`` is the command ``verigrad``."""

import sys

from verigrad.cli import main

sys.exit(main())
