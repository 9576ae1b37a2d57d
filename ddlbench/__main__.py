"""`python -m ddlbench`, for where the installed command is not on the path."""

import sys

from ddlbench.cli import main

sys.exit(main())
