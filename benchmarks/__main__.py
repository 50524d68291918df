"""``python -m benchmarks NAME``."""

import typer

from benchmarks import cost, reference, robustness

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Timings against peers, and robustness.")
app.command("cost")(cost.main)
app.command("robustness")(robustness.main)
app.command("reference")(reference.main)
app()
