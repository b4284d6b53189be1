"""Imports the FX graph of AOTAutograd: visits its nodes once and gives them to the compiler."""

from __future__ import annotations

import dataclasses
import operator
import re
from typing import Any, Callable

import torch
from torch.fx.node import Node
from torch.utils._pytree import arg_tree_leaves, tree_flatten, tree_unflatten

from inkle import _inkle, attention, layouts
from inkle.eager_calls import OPERAND, OpCall, Operand, Results, copied, is_view, settled
from inkle.host_constants import host_constants, may_be_returned
from inkle.machine import gpu_of
from inkle.returned import Callers, Returned
from inkle.seeded import SeededOps
from inkle.sizes import LARGEST_INTEGER, LEAST_INTEGER, SymbolicSizes, UnsupportedGraph

DTYPES = {
    torch.bool: "bool",
    torch.uint8: "u8",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.uint16: "u16",
    torch.uint32: "u32",
    torch.uint64: "u64",
    torch.complex32: "c32",
    torch.complex64: "c64",
    torch.complex128: "c128",
    torch.float8_e4m3fn: "f8e4m3fn",
    torch.float8_e5m2: "f8e5m2",
    torch.float8_e4m3fnuz: "f8e4m3fnuz",
    torch.float8_e5m2fnuz: "f8e5m2fnuz",
}

# The type of what is no tensor that can be computed with.
_NOTHING = ("opaque", [], None, _inkle.Device(False, 0))

_DEVICE_FRAME = f'File "{torch.utils._device.__file__}"'
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def source_line(node: Node) -> str:
    """The user's line and the node's name, "model.py:12 (addmm_3)"."""
    trace = node.meta.get("stack_trace") or ""
    at = trace.rfind('File "')
    while at > 0 and trace.startswith(_DEVICE_FRAME, at):  # torch.set_default_device stands between
        at = trace.rfind('File "', 0, at)
    found = _FRAME.match(trace, at) if at >= 0 else None
    if not found:
        return f"({node.name})"
    return f"{found[1].rsplit('/', 1)[-1]}:{found[2]} ({node.name})"


def node_name(source: str) -> str:
    """The node's name in what source_line() made."""
    return source[source.rfind("(") + 1 : -1]


def nodes_of(error: Exception, gm: torch.fx.GraphModule) -> dict[str, str]:
    """Names of the nodes that an error of the compiler is about, each with the reason."""
    names = {source_line(node): node.name for node in gm.graph.nodes if node.op == "call_function"}
    faults = getattr(error, "nodes", ())
    return {names[source]: why for source, why in faults if source in names}


@dataclasses.dataclass
class _Held:
    """What a node or argument stands for that is no tensor: an object that only eager can use, as an int
    of more than 64 bits."""

    value: Any


class GraphImporter:
    """One FX graph -> an ``_inkle.Importer`` and the table of callables for eager."""

    def __init__(
        self,
        gm: torch.fx.GraphModule,
        name: str,
        parameters: set[int],
        in_eager: dict[str, str],
        frozen: dict[int, torch.Tensor] | None = None,
        input_strides: dict[int, tuple[int, ...]] | None = None,
        output_strides: dict[int, tuple[int, ...]] | None = None,
        own_random: bool = False,
        keep: dict[Node, int] | None = None,
        callers: Callers = Callers(),
        numerics: str = "eager",
    ):
        """``in_eager``: names of nodes that must run in eager, with the reason. ``frozen``: tensors
        that become part of the graph, by position of their argument. ``input_strides`` and
        ``output_strides``: instead of those that FX states, by position; what cannot be so is taken
        out of ``output_strides``. ``own_random``: random numbers are our own generator's.
        ``keep``: of nodes of a joint graph that must be saved or computed again. ``callers``:
        what becomes of the results. ``numerics``: "bitwise" leaves ops to eager whose bits are not
        eager's."""
        self._callers = callers
        self._keep = keep or {}
        self._seeded = SeededOps(self) if own_random else None
        self.importer = _inkle.Importer(name)
        # By result: the earlier one that is the very same tensor.
        self.repeats: dict[int, int] = {}
        # Of results that are no views of what made their memory: ``OF_NOTHING``, or the earlier result that
        # they are views of. And results that are not what made their memory.
        self.view_of: dict[int, int] = {}
        self.apart: list[int] = []
        # Results that are bools, which the compiler has as integers.
        self.conditions: list[int] = []
        self._is_bitwise = numerics == "bitwise"
        self.importer.set_bitwise(self._is_bitwise)
        self.targets: list[Callable[..., Any]] = []
        self._gm = gm
        self._parameters = parameters
        self._in_eager = in_eager
        self._frozen = frozen or {}
        self._input_strides = input_strides or {}
        self.output_strides = dict(output_strides or {})
        self.current: Node | None = None
        self.writes_in_eager = False
        self._values: dict[Node, Any] = {}
        self._groups: dict[str, int] = {}
        self._sizes = SymbolicSizes(self.importer, gm)

    def run(self) -> None:
        attention.correct_devices(self._gm)
        constants, unneeded = host_constants(self._gm) if gpu_of(self._gm) is not None else ({}, ())
        position = 0
        for node in self._gm.graph.nodes:
            self.current = node
            if node in unneeded:
                continue
            if node in constants:
                self._values[node] = self._host_constant(node, constants[node])
            elif node.op == "placeholder":
                self._placeholder(node, position)
                position += 1
            elif node.op == "call_function":
                if self._keep:
                    self.importer.set_keep(self._keep.get(node, 0))
                self._call(node)
            elif node.op == "get_attr":
                self._literal(node)
            elif node.op == "output":
                self._output(node)
        self.current = None

    # --- Types ------------------------------------------------------------------------------------

    def _integer(self, value: Any) -> Any:
        """int, SymInt or SymBool -> int or Expr; of a condition 0 or 1."""
        return self._sizes.integer(value)

    @staticmethod
    def _device(device: torch.device) -> Any:
        if device.type not in ("cpu", "cuda"):
            raise UnsupportedGraph(f"a tensor lives on {device}")
        return _inkle.Device(device.type == "cuda", device.index or 0)

    def _type(self, value: Any) -> tuple[Any, ...]:
        """The type of a fake tensor; an opaque one for what is not a plain tensor."""
        if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
            return _NOTHING
        return (
            DTYPES.get(value.dtype, "opaque"),
            [self._integer(s) for s in value.shape],
            [self._integer(s) for s in value.stride()],
            self._device(value.device),
        )

    # --- Nodes ------------------------------------------------------------------------------------

    def _placeholder(self, node: Node, position: int) -> None:
        value = node.meta.get("val")
        if isinstance(value, torch.SymBool) and all("_assert" in str(u.target) for u in node.users):
            # A backward (of torch 2.11) asserts once more what the forward has.
            self.importer.integer_input(node.name, self._unread_integer(node.name))
            return
        if isinstance(value, (torch.SymInt, torch.SymBool)):
            known = self._integer(value)
            # What is no symbol of its own is known already: the argument is not read.
            symbol = known if self._sizes.is_read(value) else self._unread_integer(node.name)
            self.importer.integer_input(node.name, symbol)
            self._values[node] = known
            return
        if isinstance(value, int):
            self.importer.integer_input(node.name, self._unread_integer(node.name))
            self._values[node] = value
            return
        if not isinstance(value, torch.Tensor):
            raise UnsupportedGraph(f"argument {node.name} is a {type(value).__name__}")
        kind = self._type(value)
        if position in self._input_strides:
            kind = (*kind[:2], list(self._input_strides[position]), kind[3])
        if kind[0] == "opaque":
            raise UnsupportedGraph(f"argument {node.name} has layout {value.layout}, {value.dtype}")
        if value.is_conj() or value.is_neg():
            raise UnsupportedGraph(f"argument {node.name} is a lazy conjugate or negative")
        frozen = self._frozen.get(position)
        if frozen is not None:
            self._values[node] = self._tensor_literal(kind, frozen)
            return
        self._values[node] = self.importer.input(node.name, kind, position in self._parameters)

    def _unread_integer(self, name: str) -> Any:
        return self.importer.symbol(f"unread_{name}", LEAST_INTEGER, LARGEST_INTEGER, None)

    def _literal(self, node: Node) -> None:
        """A tensor that the graph module holds; other things are for eager."""
        held = self._gm
        for part in node.target.split("."):
            held = getattr(held, part)
        if not isinstance(held, torch.Tensor):
            self._values[node] = _Held(held)
            return
        kind = self._type(held)
        if kind[0] == "opaque":
            raise UnsupportedGraph(f"{node.target} has layout {held.layout}, {held.dtype}")
        self._values[node] = self._tensor_literal(kind, held)

    def _host_constant(self, node: Node, tensor: torch.Tensor) -> Any:
        kind = self._type(node.meta["val"])
        value = self._tensor_literal(kind, tensor)
        if not may_be_returned(node):
            return value

        return self.import_call(node, "aten::lift_fresh_copy", [value], [kind], copied)[0]

    def _tensor_literal(self, kind: tuple[Any, ...], tensor: torch.Tensor) -> Any:
        with torch.utils._python_dispatch._disable_current_modes(), torch.no_grad():
            return self.importer.literal(kind, settled(tensor.detach().cpu()).contiguous())

    def _unnamed_groups(self, schema: Any, arguments: list[Any]) -> list[Any]:
        """Process groups by number: a program of one rank is that of the others, whose groups may
        have other names. What is called has the names."""
        return [
            f"group {self._groups.setdefault(value, len(self._groups))}"
            if described.name == "group_name" and isinstance(value, str)
            else value
            for described, value in zip(schema.arguments, arguments)
        ]

    def _argument(self, value: Any) -> Any:
        if isinstance(value, Node):
            found = self._values.get(value, self)
            if found is not self:
                return found
            meta = value.meta.get("val")
            if isinstance(meta, (torch.SymInt, torch.SymBool, int)):
                return self._integer(meta)
            raise UnsupportedGraph(f"{value.name} is used as an argument")
        if isinstance(value, int) and not _fits(value):
            return _Held(value)
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, (list, tuple)):
            return [self._argument(v) for v in value]
        if isinstance(value, torch.dtype):
            return _inkle.DType(DTYPES.get(value, "opaque"))
        if isinstance(value, torch.device):
            return self._device(value)
        if isinstance(value, (torch.layout, torch.memory_format)):
            return str(value).removeprefix("torch.")
        if isinstance(value, (torch.SymInt, torch.SymBool)):
            return self._integer(value)
        return _Held(value)

    def _call(self, node: Node) -> None:
        meta = node.meta.get("val")
        if node.target is operator.getitem:
            source, index = node.args
            self._values[node] = self._values[source][index]
            return
        if isinstance(meta, (torch.SymInt, int, torch.SymBool, bool)) or meta is None:
            self._scalar(node, meta)
            return
        if isinstance(meta, torch.SymFloat):
            raise UnsupportedGraph(f"{node.name} is a symbolic float")
        several = isinstance(meta, (list, tuple))
        values = meta if several else [meta]
        kinds = [self._type(v) for v in values]
        for value, kind in zip(values, kinds):
            if kind[0] == "opaque" and isinstance(value, torch.Tensor):
                raise UnsupportedGraph(f"a result has layout {value.layout}, {value.dtype}")
        if several and all(user.target is operator.getitem for user in node.users):
            # Unused results may be anything, even of an unsupported type.
            used = {user.args[1] for user in node.users}
            kinds = [k if i in used else _NOTHING for i, k in enumerate(kinds)]
        target = len(self.targets)
        if isinstance(node.target, torch._ops.OpOverload):
            results = self._overload(node, kinds, target)
        else:
            results = self._other(node, kinds, target)
        # What is no tensor: nothing, or a size.
        results = [
            r if kind[0] != "opaque" else (None if v is None else self._argument(v))
            for r, kind, v in zip(results, kinds, values)
        ]
        self._values[node] = results if several else results[0]

    def _overload(self, node: Node, kinds: list[Any], target: int) -> list[Any]:
        schema = node.target._schema
        overload = schema.name
        if schema.overload_name:
            overload += f".{schema.overload_name}"
        arguments = _all_arguments(node)
        reason = self._in_eager.get(node.name, "")
        if self._seeded and not reason:
            if (seeded := self._seeded.call(node, arguments, kinds)) is not None:
                return seeded
        elsewhere, is_eager = layouts.why_elsewhere(node, arguments)
        if elsewhere and not is_eager:
            self.refuse(f"{node.name}: {elsewhere}")
        reason = reason or elsewhere
        bias = None if reason or self._is_bitwise else _bias_apart(node, arguments)
        if bias is not None:
            arguments = [*arguments[:2], None, *arguments[3:]]
        args = [self._argument(a) for a in self._unnamed_groups(schema, arguments)]
        if any(_holds(a) for a in args):
            reason = reason or "an argument is for eager only"
            args = [_without_held(a) for a in args]
        self.targets.append(self._eager_overload(node, arguments, kinds))
        results = self.importer.call(overload, args, source_line(node), kinds, target, reason)
        if layouts.is_strides_by_guard(node) and node.name in self.names_in_eager():
            self.refuse(f"{node.name}: its strides may lead to memory beyond its operand")
        if schema.is_mutable:
            self.writes_in_eager |= node.name in self.names_in_eager()
        return results if bias is None else self._add_bias(node, results[0], bias, kinds)

    def _add_bias(self, node: Node, y: Any, bias: Node, kinds: list[Any]) -> list[Any]:
        """y + bias along dimension 1, as ATen's own convolution computes it on a GPU."""
        source, dtype, device = source_line(node), kinds[0][0], kinds[0][3]
        sizes = [1, self._integer(bias.meta["val"].shape[0])] + [1] * (len(kinds[0][1]) - 2)

        def in_eager(call: OpCall) -> int:
            self.targets.append(call)
            return len(self.targets) - 1

        view, add = torch.ops.aten.view.default, torch.ops.aten.add.Tensor
        viewed = OpCall(view, [OPERAND, [OPERAND] * len(sizes)])
        kind = (dtype, sizes, None, device)
        (row,) = self.importer.call("aten::view", [self._argument(bias), sizes], source, [kind],
                                    in_eager(viewed), "")
        return self.importer.call("aten::add.Tensor", [y, row, 1], source, kinds,
                                  in_eager(OpCall(add, [OPERAND] * 3)), "")

    def import_call(self, node: Node, overload: str, arguments: list[Any], kinds: list[Any],
                    in_eager: Callable[..., Any]) -> list[Any]:  # fmt: skip
        """A call that stands for a part of a node; ``in_eager`` takes its operands."""
        self.targets.append(in_eager)
        target = len(self.targets) - 1
        return self.importer.call(overload, arguments, source_line(node), kinds, target, "")

    def argument(self, value: Any) -> Any:
        return self._argument(value)

    def source(self, node: Node) -> str:
        return source_line(node)

    def names_in_eager(self) -> set[str]:
        return {node_name(source) for _, source, _ in self.importer.eager}

    def refuse(self, message: str) -> None:
        raise UnsupportedGraph(message)

    def integer(self, value: Any) -> Any:
        return self._integer(value)

    def type(self, value: Any) -> tuple[Any, ...]:
        return self._type(value)

    def device(self, device: torch.device) -> Any:
        return self._device(device)

    def calls(self, numbers: list[int]) -> dict[int, Callable[..., Any]]:
        """The callables of these calls to eager."""
        return {number: self.targets[number] for number in numbers}

    def _other(self, node: Node, kinds: list[Any], target: int) -> list[Any]:
        """An op that takes more than tensors and numbers: subgraphs, other ops."""
        name = str(node.target)
        if not isinstance(node.target, torch._ops.HigherOrderOperator):
            raise UnsupportedGraph(f"{name} is not an op overload")
        leaves, spec = tree_flatten((node.args, dict(node.kwargs)))
        values = [self._argument(leaf) for leaf in leaves]
        operands = [v for v in values if isinstance(v, (_inkle.Value, _inkle.Expr))]
        is_operand = [isinstance(v, (_inkle.Value, _inkle.Expr)) for v in values]
        held = [v.value if isinstance(v, _Held) else leaf for v, leaf in zip(values, leaves)]
        held = [v if isinstance(leaf, Node) and isinstance(v, int) else h
                for v, leaf, h in zip(values, leaves, held)]
        self.writes_in_eager = True
        operator_, select = node.target, _tensors_of(node, kinds)
        is_condition = [_is_condition(leaf) for leaf in leaves]

        def run(*flat: Any) -> Any:
            given = iter(flat)
            made = [next(given) if is_one else h for is_one, h in zip(is_operand, held)]
            made = [bool(m) if is_one else m for m, is_one in zip(made, is_condition)]
            positional, keywords = tree_unflatten(made, spec)
            with torch.no_grad(), torch._C._DisableAutocast():
                return select(operator_(*positional, **keywords))

        self.targets.append(run)
        return self.importer.call(f"higher_order::{name}", operands, source_line(node), kinds,
                                  target, "")

    def _eager_overload(self, node: Node, arguments: list[Any], kinds: list[Any]) -> OpCall:
        """A callable that takes the flat operands (tensors and sizes) of a node and runs it."""

        def of_known(known: Any) -> Any:
            if known is None or isinstance(known, bool):
                return known
            if isinstance(known, list):
                return [of_known(k) for k in known]
            return known.value if isinstance(known, _Held) else OPERAND

        def template(value: Any) -> Any:
            if isinstance(value, Node):
                made = of_known(self._values.get(value, value))
                if not _is_condition(value):
                    return made
                return bool(made) if isinstance(made, bool) else Operand(is_condition=True)
            if isinstance(value, torch.SymBool):
                return Operand(is_condition=True)
            if isinstance(value, torch.SymInt):
                return OPERAND
            if isinstance(value, int) and not isinstance(value, bool):
                return OPERAND if _fits(value) else value
            return [template(v) for v in value] if isinstance(value, (list, tuple)) else value

        return OpCall(node.target, [template(a) for a in arguments], _tensors_of(node, kinds))

    def _scalar(self, node: Node, meta: Any) -> None:
        """Arithmetic on sizes vanishes into expressions; asserts on them were checked by Dynamo."""
        if isinstance(meta, torch.SymInt):
            self._values[node] = self._integer(meta)
            return
        if isinstance(meta, int):
            self._values[node] = meta if _fits(meta) else _Held(meta)
            return
        name = str(node.target)
        if isinstance(meta, torch.SymBool) or "_assert" in name or "sym_constrain" in name:
            return
        raise UnsupportedGraph(f"{name} returns nothing that can be compiled")

    def _output(self, node: Node) -> None:
        returned = Returned(self, node, self._callers)
        for position, value in enumerate(arg_tree_leaves(*node.args)):
            if value is None:
                self.importer.output_none()
                continue
            if _is_condition(value):
                self.conditions.append(position)
            if not isinstance(value, Node):
                if isinstance(value, int):
                    self.importer.output(self.importer.constant(value))
                    continue
                raise UnsupportedGraph(f"the graph returns {value!r}")
            found = self._argument(value)
            if found is None:
                self.importer.output_none()
                continue
            if isinstance(found, int):
                found = self.importer.constant(found)
            if isinstance(found, _Held):
                raise UnsupportedGraph(f"the graph returns {value.name}")
            strides = self.output_strides.get(position)
            if isinstance(found, _inkle.Value) and strides is None:
                returned.give(position, value, found)
            elif strides is None:
                self.importer.output(found)
            elif not self.importer.output_as(found, strides):
                del self.output_strides[position]


def _fits(value: int) -> bool:
    """In the 64 bits of the compiler's integers."""
    return LEAST_INTEGER <= value <= LARGEST_INTEGER


def _is_condition(argument: Any) -> bool:
    value = argument.meta.get("val") if isinstance(argument, Node) else argument
    return isinstance(value, (torch.SymBool, bool))


def _bias_apart(node: Node, arguments: list[Any]) -> Node | None:
    """The bias of a convolution on a GPU, which is better added by what reads the result.

    Torch adds it in a kernel of its own there, unless relu follows: that is one kernel with it.
    """
    if node.target is not torch.ops.aten.convolution.default or arguments[2] is None:
        return None
    if node.meta["val"].device.type != "cuda":
        return None
    users = [user.target for user in node.users]
    return None if users == [torch.ops.aten.relu.default] else arguments[2]


def _all_arguments(node: Node) -> list[Any]:
    """Arguments in schema order, keyword-only ones and defaults included."""
    schema = node.target._schema
    result = list(node.args)
    for argument in schema.arguments[len(result) :]:
        if argument.name in node.kwargs:
            result.append(node.kwargs[argument.name])
        elif argument.has_default_value():
            result.append(argument.default_value)
        else:
            raise UnsupportedGraph(f"{node.target} lacks its argument {argument.name}")
    return result


def _tensors_of(node: Node, kinds: list[Any]) -> Results:
    """Takes those results of an op that are tensors out of what it returned."""
    meta = node.meta.get("val")
    several = isinstance(meta, (list, tuple))
    values = meta if several else [meta]
    dtypes = [v.dtype if isinstance(v, torch.Tensor) else None for v in values]
    wanted = (i for i, kind in enumerate(kinds) if kind[0] != "opaque")
    return Results(several, tuple((i, dtypes[i]) for i in wanted), is_view(node.target))


def _holds(argument: Any) -> bool:
    if isinstance(argument, list):
        return any(_holds(a) for a in argument)
    return isinstance(argument, _Held)


def _without_held(argument: Any) -> Any:
    if isinstance(argument, list):
        return [_without_held(a) for a in argument]
    return None if isinstance(argument, _Held) else argument
