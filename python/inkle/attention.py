"""Keeps scaled_dot_product_attention one op through AOTAutograd, which would split it.

In inference the call becomes the custom op ``inkle::attention``. Under autograd it becomes an op with
a gradient of its own on the CPU (``attend.py``); on a GPU what AOTAutograd makes of it is compiled, by
the kernels that were measured to be the fastest. Before that, a
mask that the graph computes from nothing but sizes is looked at: one that hides nothing goes, a causal
one becomes the flag, so that torch may pick its fused kernels for the call.
"""

from __future__ import annotations

import operator

import torch
import torch.nn.functional as F

from inkle import attend, attention_backends


@torch.library.custom_op("inkle::attention", mutates_args=())
def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )


@attention.register_fake
def _(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
      enable_gqa=False):
    # Which strides eager's result has depends on the kernel that it picks: ask it.
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )


def differentiable(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """F.scaled_dot_product_attention of CUDA tensors that need gradients, as AOTAutograd traces it: by
    the kernels that are the fastest for forward and backward together."""
    tensors = [query, key, value, *([] if attn_mask is None else [attn_mask])]
    if torch.is_autocast_enabled("cuda"):  # as it would cast them itself
        dtype = torch.get_autocast_dtype("cuda")
        wide = (torch.float32, torch.float16, torch.bfloat16)
        tensors = [t.to(dtype) if t.dtype in wide else t for t in tensors]
    mask = tensors[3] if attn_mask is not None else None
    if any(isinstance(s, int) and s == 0 for t in tensors[:3] for s in t.shape):
        # Torch's kernels have no backward for empty heads, and there is nothing to gain.
        return torch.ops.aten._scaled_dot_product_attention_math(
            *tensors[:3], mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )[0]
    backend = attention_backends.for_training(
        tensors[:3], mask, dropout_p, is_causal, scale, enable_gqa
    )
    with attention_backends.preferring(backend):
        return F.scaled_dot_product_attention(
            *tensors[:3], mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )


def _is_transformed(node: torch.fx.Node) -> bool:
    """Whether it stands inside of vmap, grad or the like: they know no batching rule of our ops, nor do
    their tensors say whether what is around them needs gradients."""
    examples = [n.meta.get("example_value") for n in node.all_input_nodes]
    is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor
    return any(isinstance(e, torch.Tensor) and is_wrapped(e) for e in examples)


def _has_choice(node: torch.fx.Node) -> bool:
    """Whether it is a call under autograd that several kernels of a GPU might run."""
    tensors = [_operand_of(node, i, name) for i, name in enumerate(("query", "key", "value"))]
    examples = [t.meta.get("example_value") for t in tensors if isinstance(t, torch.fx.Node)]
    if len(examples) != 3 or not all(
        isinstance(t, torch.Tensor) and t.is_cuda and t.dim() == 4 and t.is_floating_point()
        and not t.is_nested for t in examples
    ):  # fmt: skip
        return False
    mask = _operand_of(node, 3, "attn_mask")
    if isinstance(mask, torch.fx.Node) and mask.meta["example_value"].requires_grad:
        return False
    numbers = (_operand_of(node, 4, "dropout_p"), _operand_of(node, 6, "scale"))
    is_plain = all(n is None or isinstance(n, (int, float)) for n in numbers)
    return is_plain and torch.is_grad_enabled() and any(t.requires_grad for t in examples)


def _trained(node: torch.fx.Node) -> tuple | None:
    """The arguments of a call under autograd on the CPU that drops nothing."""
    found = attend.arguments(node)
    if found is None or found[1][0] != 0 or not torch.is_grad_enabled():
        return None
    # Eager has plain ops then, which do not keep the result: a user may write to it.
    if any(not _has_unit_stride(t.meta["example_value"]) for t in found[0][:3]):
        return None
    is_trained = any(t is not None and t.meta["example_value"].requires_grad for t in found[0])
    return found if is_trained else None


def _has_unit_stride(tensor: torch.Tensor) -> bool:
    """Of the last dimension, also where that is of size 1: torch's kernels ask for it."""
    stride = tensor.stride(-1)
    return isinstance(stride, int) and stride == 1


def _may_replace(node: torch.fx.Node) -> bool:
    if (_operand_of(node, 4, "dropout_p") or 0.0) != 0.0:
        return False
    tensors = [_operand_of(node, i, name) for i, name in enumerate(("query", "key", "value"))]
    for tensor in tensors:
        example = tensor.meta.get("example_value") if isinstance(tensor, torch.fx.Node) else None
        if example is None or not example.is_floating_point() or example.is_nested:
            return False
        if example.dim() not in (3, 4) or example.device.type not in ("cpu", "cuda"):
            return False
        if torch.is_grad_enabled() and example.requires_grad:
            return False
    shapes = [t.meta["example_value"].shape for t in tensors]
    if len({len(s) for s in shapes}) != 1:
        return False
    # Batch dimensions that broadcast are left to eager's own rule.
    return all(shapes[0][0] == s[0] for s in shapes[1:])


# Functions and methods that make a mask of sizes: the same on every call and without a side effect.
_PURE = frozenset(
    "arange ones zeros full ones_like zeros_like full_like tensor scalar_tensor ge gt le lt eq ne "
    "and and_ or or_ xor invert bitwise_and bitwise_or bitwise_not logical_and logical_or logical_not "
    "expand expand_as unsqueeze squeeze view reshape flatten to bool "
    "float int long type getitem tril triu add sub mul neg where masked_fill transpose permute "
    "contiguous clone cat diff cumsum new_ones new_zeros new_full".split()
)
# Python's own ways to write to a tensor; methods that do end with an underscore.
_IN_PLACE = frozenset("setitem iadd isub imul itruediv ifloordiv imod iand ior ixor".split())
# Elements of the largest tensor that is computed to look at a mask.
_MOST_ELEMENTS = 1 << 25


def _name_of(node: torch.fx.Node) -> str:
    target = node.target
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    # Comparisons of tensors may arrive as calls of ``__eq__`` and the like.
    return name[2:-2] if name.startswith("__") and name.endswith("__") else name


def _constant(
    node: torch.fx.Node, known: dict[torch.fx.Node, object], written: set[torch.fx.Node]
) -> torch.Tensor:
    """The value of a node that depends on no input, on the CPU; LookupError for any other."""
    if node in known:
        return known[node]
    example = node.meta.get("example_value")
    is_small = (
        isinstance(example, torch.Tensor)
        and all(isinstance(n, int) for n in example.shape)
        and example.numel() <= _MOST_ELEMENTS
    )
    is_call = node.op in ("call_function", "call_method")
    if not is_call or _name_of(node) not in _PURE or not is_small or node in written:
        raise LookupError(node.name)
    def value(argument: object) -> object:
        if isinstance(argument, torch.fx.Node):
            return _constant(argument, known, written)
        return torch.device("cpu") if isinstance(argument, torch.device) else argument

    args = torch.fx.node.map_aggregate(node.args, value)
    kwargs = {k: torch.fx.node.map_aggregate(v, value) for k, v in node.kwargs.items()}
    if "device" in kwargs:
        kwargs["device"] = "cpu"
    if any(isinstance(a, str) and a.startswith("cuda") for a in args):
        raise LookupError(node.name)
    if node.op == "call_method":
        result = getattr(args[0], node.target)(*args[1:], **kwargs)
    else:
        result = node.target(*args, **kwargs)
    known[node] = result
    return result


# Functions whose results have memory of their own, whatever their arguments.
_FRESH = frozenset(
    "scaled_dot_product_attention differentiable linear layer_norm addmm matmul bmm baddbmm embedding softmax gelu "
    "tanh pow add sub mul truediv neg cat arange cumsum diff eq ne lt le gt ge and_ or_".split()
)


def _written(gm: torch.fx.GraphModule) -> set[torch.fx.Node]:
    """Nodes whose memory some node writes to, through whatever may be a view of it."""
    found: set[torch.fx.Node] = set()
    for node in gm.graph.nodes:
        name = _name_of(node)
        writes = name in _IN_PLACE or (name.endswith("_") and name not in _PURE)
        if not writes and "out" not in node.kwargs and node.kwargs.get("inplace") is not True:
            continue
        waiting = [node]
        while waiting:
            at = waiting.pop()
            if at not in found:
                found.add(at)
                if at is node or _name_of(at) not in _FRESH:
                    waiting += at.all_input_nodes
    return found


def _drop_constant_mask(
    node: torch.fx.Node, known: dict[torch.fx.Node, object], written: set[torch.fx.Node]
) -> None:
    given = list(attend.positional(node))
    mask = given[3]
    if not isinstance(mask, torch.fx.Node) or given[5]:
        return
    try:
        with torch._subclasses.fake_tensor.unset_fake_temporarily(), torch.no_grad():
            value = _constant(mask, known, written)
            # One of those that are the same.
            for d in range(value.dim()):
                if value.stride(d) == 0 and value.size(d) > 1 and d < value.dim() - 2:
                    value = value.narrow(d, 0, 1)
            hides = ~value if value.dtype == torch.bool else value != 0
            is_neutral = not bool(hides.any())
            is_causal = value.dtype == torch.bool and value.dim() >= 2
            if is_causal and not is_neutral:
                lower = torch.ones(value.shape[-2:], dtype=torch.bool).tril()
                is_causal = bool((value == lower).all())
    except (LookupError, TypeError, RuntimeError):
        return
    query, key = (given[i].meta.get("example_value") for i in (0, 1))
    whole = query is not None and key is not None and mask.meta["example_value"].shape[-2:] == (
        query.shape[-2], key.shape[-2])  # fmt: skip
    if is_neutral or (is_causal and whole):
        given[3], given[5] = None, not is_neutral
        node.args = tuple(given[:6])
        node.kwargs = {"scale": given[6], "enable_gqa": given[7]}


def replace(gm: torch.fx.GraphModule, random: str = "fast") -> None:
    """Replaces the calls in a Dynamo graph, in place; ``random`` as in the options."""
    known: dict[torch.fx.Node, object] = {}
    written: set[torch.fx.Node] | None = None
    for node in gm.graph.nodes:
        if node.op != "call_function":
            continue
        if node.target is not F.scaled_dot_product_attention or _is_transformed(node):
            continue
        if isinstance(_operand_of(node, 3, "attn_mask"), torch.fx.Node):
            written = _written(gm) if written is None else written
            _drop_constant_mask(node, known, written)
        if _may_replace(node):
            node.args = attend.positional(node)
            node.target = torch.ops.inkle.attention.default
            node.kwargs = {}
        elif (found := _trained(node)) is not None:
            tensors, options = found
            node.args, node.kwargs = (*tensors, None, 0, *options), {}
            node.target = attend.differentiable
        elif _has_choice(node):
            given = attend.positional(node)
            # Each kernel draws other numbers.
            if given[4] == 0.0 or random != "eager":
                node.args, node.kwargs, node.target = given, {}, differentiable
    gm.recompile()


def _operand_of(node: torch.fx.Node, index: int, name: str) -> object:
    return node.args[index] if len(node.args) > index else node.kwargs.get(name)


# Of the kernel's results and of its backward's arguments those that state how it drew random
# numbers: they lie on the CPU, whatever FX states (attention_backends.efficient_in_eager).
_STATES = (2, 3)
_STATE_ARGUMENTS = (7, 8)


def correct_devices(gm: torch.fx.GraphModule) -> None:
    """States in an AOTAutograd graph where results of torch's efficient attention lie."""

    def move(node: torch.fx.Node) -> None:
        value = node.meta.get("val")
        if isinstance(value, torch._subclasses.FakeTensor) and value.is_cuda:
            node.meta["val"] = _on_cpu(value)

    for node in gm.graph.nodes:
        if node.target is torch.ops.aten._scaled_dot_product_efficient_attention.default:
            values = list(node.meta.get("val") or ())
            for i in _STATES[: len(values)]:
                if values[i].is_cuda:
                    values[i] = _on_cpu(values[i])
            node.meta["val"] = tuple(values)
            for user in node.users:
                if user.target is operator.getitem and user.args[1] in _STATES:
                    move(user)
        elif node.target is torch.ops.aten._scaled_dot_product_efficient_attention_backward.default:
            for i in _STATE_ARGUMENTS:
                if node.args[i].op == "placeholder":
                    move(node.args[i])


def _on_cpu(value: torch.Tensor) -> torch.Tensor:
    with value.fake_mode:
        return torch.empty_like(value, device="cpu")
