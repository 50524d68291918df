"""``python -m bsvr_pp.cli`` is ``bsvr-pp``."""

from bsvr_pp.cli import app

app()
