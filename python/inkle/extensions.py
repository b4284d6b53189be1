"""What users bring along: passes over FX graphs, patterns and partitioners (docs/python.md).

A pass is called with a ``torch.fx.Graph``, which it changes in place. What it has made or changed
gets the fake tensors that the importer reads; a pass that raises, or that leaves a graph with other
arguments or results, is a failure of its own kind.
"""

from __future__ import annotations

import copy
from typing import Any, Callable, Iterator, Sequence

import torch
from torch._functorch import config as functorch_config
from torch._functorch.partitioners import default_partition, min_cut_rematerialization_partition
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.node import Node

from inkle import filled, number_tensors, patterns
from inkle.options import Options
from inkle.report import ExtensionFailed

Graph = torch.fx.Graph
PartitionFunction = Callable[..., tuple[torch.fx.GraphModule, torch.fx.GraphModule]]


def uuid(options: Options) -> str | None:
    """What caches know the user's functions by; None: a function has no ``uuid()``.

    Passes before the joint graph and patterns are left out: their work is part of the graph.
    """
    given = [*options.joint_pass, *options.post_grad_pass]
    if options.partitioner is not None:
        given.append(options.partitioner)
    if callable(functorch_config.joint_custom_pass):
        return None
    known = []
    for function in given:
        made = function.uuid() if callable(getattr(function, "uuid", None)) else None
        if not made:
            return None
        known.append(f"{type(function).__qualname__} {made!r}")
    return "\n".join(known)


def before_autograd(gm: torch.fx.GraphModule, options: Options) -> None:
    """Passes and patterns over Dynamo's graph, in place."""
    if not (options.pre_grad_pass or options.patterns):
        return
    for one in options.pre_grad_pass:
        _apply(gm, one, "example_value")
    for pattern in options.patterns:
        _apply(gm, patterns.Pattern(*pattern), "example_value")
    gm.recompile()


def over_joint(gm: torch.fx.GraphModule, options: Options) -> None:
    for one in options.joint_pass:
        _apply(gm, one, "val")


def over_inference(gm: torch.fx.GraphModule, options: Options) -> None:
    """Of a graph without a backward, which is its own joint graph. If a pass fails the graph is as
    it was."""
    filled.fill(gm)
    number_tensors.make(gm)
    if not (options.joint_pass or options.post_grad_pass):
        return
    as_given = copy.deepcopy(gm.graph)
    try:
        over_joint(gm, options)
        _after_autograd(gm, options, is_inference=True)
    except ExtensionFailed:
        gm.graph = as_given
        raise


def over_half(gm: torch.fx.GraphModule, options: Options) -> None:
    """Of a forward or a backward. If a pass fails the graph is as it was."""
    if not options.post_grad_pass:
        return
    as_given = copy.deepcopy(gm.graph)
    try:
        _after_autograd(gm, options, is_inference=False)
    except ExtensionFailed:
        gm.graph = as_given
        raise


def _after_autograd(gm: torch.fx.GraphModule, options: Options, is_inference: bool) -> None:
    for one in options.post_grad_pass:
        _apply(gm, one, "val", **({"is_inference": is_inference} if _is_aware(one) else {}))


def _is_aware(one: Callable[..., Any]) -> bool:
    """Of whether the graph is an inference graph: a class of TorchInductor's."""
    from torch._inductor import custom_graph_pass

    aware = getattr(custom_graph_pass, "CustomInferenceAwareGraphPass", None)
    return aware is not None and isinstance(one, aware)


def partition_function(own: PartitionFunction, options: Options) -> PartitionFunction:
    """The partitioner of joint graphs: the user's, torch's where its memory budget is to be kept
    or passes want two graphs, else ``own``."""

    def partition(gm: torch.fx.GraphModule, inputs: Any, **named: Any) -> Any:
        filled.fill(gm)
        number_tensors.make(gm)
        over_joint(gm, options)
        if options.partitioner is not None:
            return options.partitioner(gm, inputs, **named)
        if _has_budget(gm.graph):
            return min_cut_rematerialization_partition(gm, inputs, **named)
        if options.partition == "default" or options.post_grad_pass:
            return default_partition(gm, inputs, **named)
        return own(gm, inputs, **named)

    return partition


def _has_budget(graph: Graph) -> bool:
    """Whether torch is asked for less memory of what the forward keeps, for all or for a region."""
    if functorch_config.activation_memory_budget != 1:
        return True
    of_region = getattr(torch.fx.traceback, "_get_memory_budget_annotation", lambda node: None)
    return any("memory_budget" in n.meta or of_region(n) is not None for n in graph.nodes)


# --- One pass -------------------------------------------------------------------------------------


def _name(one: Callable[..., Any]) -> str:
    return getattr(one, "__qualname__", None) or type(one).__qualname__


def _apply(gm: torch.fx.GraphModule, one: Callable[..., Any], key: str, **named: Any) -> None:
    """``key``: where nodes of this graph have their example value."""
    graph = gm.graph
    before = {node: _reads(node) for node in graph.nodes}
    interface = _interface(graph)
    try:
        one(graph, **named)
        if gm.graph is not graph:
            graph = gm.graph
        graph.lint()
        if _interface(graph) != interface:
            raise ValueError("the graph has other arguments or another number of results")
        _settle(graph, before, key)
    except Exception as error:  # noqa: BLE001: of the user's code
        raise ExtensionFailed(f"pass {_name(one)}: {type(error).__name__}: {error}") from error
    gm.recompile()


def _interface(graph: Graph) -> tuple[Any, ...]:
    names = [n.target for n in graph.nodes if n.op == "placeholder"]
    results = torch.utils._pytree.tree_structure(graph.output_node().args)
    return names, results


def _reads(node: Node) -> tuple[Any, ...]:
    return node.op, node.target, node.args, node.kwargs


def _settle(graph: Graph, before: dict[Node, tuple[Any, ...]], key: str) -> None:
    """Example values for nodes that a pass has made, has given other arguments, or that read such
    ones of another type; what else a node says of itself is its neighbour's."""
    changed: set[Node] = set()
    # Not the mode of the context: Dynamo has another for its backends than for its graph.
    fake = (v for n in graph.nodes for v in _tensors(n.meta.get(key)) if isinstance(v, FakeTensor))
    mode = getattr(next(fake, None), "fake_mode", None)
    neighbour: Node | None = None
    for node in graph.nodes:
        if node.op in ("placeholder", "output", "get_attr"):
            continue
        is_new = node not in before
        if is_new:
            _inherit(node, neighbour)
        neighbour = node
        reads_new = any(n in changed for n in node.all_input_nodes)
        if not is_new and before[node] == _reads(node) and not reads_new:
            continue
        value = _computed(node, key, mode)
        if is_new or _type(value) != _type(node.meta.get(key)):
            changed.add(node)
        node.meta[key] = value


def _inherit(node: Node, neighbour: Node | None) -> None:
    """The user's line, and whether it is of the backward."""
    near = [*node.all_input_nodes, *([neighbour] if neighbour is not None else [])]
    traces = (n.meta.get("stack_trace") for n in reversed(near))
    if trace := next(filter(None, traces), None):
        node.meta.setdefault("stack_trace", trace)
    tags = [n.meta["partitioner_tag"] for n in near if "partitioner_tag" in n.meta]
    if tags:
        is_backward = "is_backward" in tags
        node.meta.setdefault("partitioner_tag", "is_backward" if is_backward else tags[-1])


def _computed(node: Node, key: str, mode: Any) -> Any:
    def value(argument: Node) -> Any:
        if argument.op == "get_attr":
            return _attribute(argument)
        if key not in argument.meta:
            raise ValueError(f"{argument.name}, which {node.name} reads, has no example value")
        return argument.meta[key]

    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), value)
    if mode is None:
        raise ValueError(f"there are no example values to compute that of {node.name} from")
    with mode, torch._dynamo.utils.preserve_rng_state():
        if node.op == "call_method":
            return getattr(args[0], node.target)(*args[1:], **kwargs)
        if node.op == "call_module":
            return node.graph.owning_module.get_submodule(node.target)(*args, **kwargs)
        return node.target(*args, **kwargs)


def _attribute(node: Node) -> Any:
    value: Any = node.graph.owning_module
    for name in node.target.split("."):
        value = getattr(value, name)
    return value


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    for one in value if isinstance(value, (list, tuple)) else (value,):
        if isinstance(one, torch.Tensor):
            yield one


def _type(value: Any) -> Any:
    """Of a value what other nodes' types follow from."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.device, tuple(map(str, value.shape)), value.layout
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_type(v) for v in value]
    return str(value)
