"""Measure the machine at hand.

Run ``python -m monarch.simulator profile --procs 2 --save machine.json``.
"""

from __future__ import annotations

import argparse
import dataclasses
import json

from monarch.actor import this_host

from .machine import MACHINES
from .meter import measure


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m monarch.simulator", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    profile = commands.add_parser("profile", help="measure this machine")
    profile.add_argument(
        "--procs", type=int, default=2, help="ranks that compute at the same time (default: 2)"
    )
    profile.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    profile.add_argument(
        "--shared", action="store_true", help="others use the processors meanwhile"
    )
    profile.add_argument(
        "--save", metavar="FILE.json", help="for Simulator(machine=FILE.json); else it is printed"
    )
    commands.add_parser("machines", help="list those that are built in")
    arguments = parser.parse_args()
    if arguments.command == "machines":
        for machine in MACHINES.values():
            print(f"{machine.name:8}  {machine.source}")
        return
    procs = this_host().spawn_procs(per_host={"gpus": arguments.procs})
    machine = measure(procs, arguments.device, shared=arguments.shared)
    procs.stop().get()
    if arguments.save:
        machine.save(arguments.save)
    else:
        print(json.dumps(dataclasses.asdict(machine), indent=2))


if __name__ == "__main__":
    main()
