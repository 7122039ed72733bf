"""`python -m tests.chaos --seconds 300 --seed 7`: one run of live chaos."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "compat")]

from chaos_run import main  # noqa: E402

sys.exit(main())
