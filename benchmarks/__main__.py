"""``python -m benchmarks NAME``."""

import typer

from benchmarks import calibration, cost, housing, marginal, reference, robustness, sampling

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Timings against peers, and robustness.")
app.command("calibration")(calibration.main)
app.command("cost")(cost.main)
app.command("housing")(housing.main)
app.command("robustness")(robustness.main)
app.command("marginal")(marginal.main)
app.command("reference")(reference.main)
app.command("sampling")(sampling.main)
app()
