"""``mesh.method.rref(...)``.

The results of endpoints stay with the ranks, as distributed tensors.
"""

from __future__ import annotations

from typing import Any

from torch.utils import _pytree as pytree

from ..._core.plane import StopCall
from ...actor import Endpoint
from ..planning.plans import Plan
from ..tensors import operand_checks
from ..tensors.activation import get_active_mesh
from ..tensors.references import lend
from .call_arguments import pack
from .propagation import built, outputs_of, propagated, results


def rref(endpoint: Endpoint[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """See `Endpoint.rref`."""
    definition, target = endpoint._definition, endpoint._target
    rule = definition.propagate
    if rule in (None, "cached", "mocked") or definition.explicit_response_port:
        raise NotImplementedError(
            f"{endpoint.name} does not say what its results look like: use"
            " @endpoint(propagate=rule), where the rule takes the arguments without self and"
            ' returns tensors like the results, or propagate="inspect" if there are none'
        )
    arguments = pack(endpoint.name, args, kwargs)
    mesh = arguments.tensors[0].mesh if arguments.tensors else get_active_mesh()
    if any(tensor.mesh is not mesh for tensor in arguments.tensors):
        raise operand_checks.error(endpoint.name, arguments.tensors, {})
    if set(target.procs) != set(mesh.group.procs):
        raise ValueError(
            f"{endpoint.name} and {mesh!r} must be located on the same processes; slice one of them"
        )
    plan, tree = (
        (Plan([], (), known=False), None) if rule == "inspect" else propagated(rule, arguments)
    )
    made = results(mesh, plan, arguments.tensors)
    outputs = None if rule == "inspect" else outputs_of(plan, made)
    data, buffers = arguments.payload
    content = lend(
        arguments.tensors, (data, [each.raw() for each in buffers]), target.procs, target.uid,
        mesh.engine, outputs,
    )  # fmt: skip
    # the answers are not read: a failure is raised where a result is fetched
    target.cast(endpoint._meta, content, StopCall(endpoint.name, target.procs))
    return (
        None if tree is None else pytree.tree_unflatten(built(plan, made, arguments.tensors), tree)
    )
