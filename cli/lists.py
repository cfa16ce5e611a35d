"""The verbs that print what there is: policies, and the schema of scenarios."""

from __future__ import annotations

import typer

from cli.failures import failures


def policies() -> None:
    """List the scheduling policies, with sources."""
    with failures():
        from policies import POLICIES
        from sim.policy_list import policy_list
        from sim.printing import printing
        from sim.tables import new_console

        with printing():
            typer.echo(policy_list(POLICIES, new_console().width))


def schema() -> None:
    """Print the JSON schema of scenarios, for editors."""
    with failures():
        import json

        from sim import Scenario
        from sim.printing import printing

        with printing():
            typer.echo(json.dumps(Scenario.model_json_schema(), indent=2))
