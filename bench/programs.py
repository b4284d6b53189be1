"""Random programs in PyTorch's eager mode, against what the interpreter says of them:

    INKLE_RECORD_DIR=folder INKLE_FUZZ_COUNT=20000 build/tests/test_driver \\
        --gtest_filter=RandomPrograms.Record
    python bench/programs.py folder
    python bench/programs.py folder --compiled --device cuda --shard 0/8    as a user compiles them

The same programs run compiled against the interpreter in `RandomPrograms.RunAsTheInterpreterSays`,
with the same allowance for each element, so that compiled code, interpreter and eager are compared.
With ``--compiled`` what eager has right is traced, goes through torch.compile and is called twice.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import re
import sys
from typing import Any

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))

import inkle
import torch
from inkle import _inkle
from inkle.eager_graph import NAMED_DTYPES, EagerGraph, size_of
from torch.fx.experimental.proxy_tensor import make_fx

# Memory that nobody wrote: the interpreter has zeros there.
_EMPTY = {"aten::empty.memory_format": "aten::zeros", "aten::empty_like": "aten::zeros_like",
          "aten::new_empty": "aten::new_zeros"}  # fmt: skip
# What is not specified, or not in ATen: backwards of results that another op made, unsorted bounds,
# places in the memory of a value; ATen's kernels of some ops take contiguous arguments alone, as
# their callers make them, and its pixel_unshuffle of no elements has other sizes than its meta
# function.
_UNSPECIFIED = ("_scaled_dot_product_flash_attention_for_cpu_backward", "attend_backward",
                "log_sigmoid_backward", "bucketize", "searchsorted", "as_strided",
                "_weight_norm_interface", "native_layer_norm_backward",
                "f32[0,12,2,3] = pixel_unshuffle")  # fmt: skip


class Program:
    """A graph as EagerGraph runs it, without writes to inputs: what is written is a further result,
    since a value stays what it was when an input is written later, as a view in eager does not."""

    def __init__(self, text: str):
        self._cut = _inkle.Partition.of_text(text)
        self.inputs, self.input_types = self._cut.inputs, self._cut.input_types
        self.literals = self._cut.literals
        self.written: list[tuple[Any, Any, Any]] = []  # input, value, type

    def nodes(self, is_backward: bool) -> list[Any]:
        made = []
        for names, target, args, results, types in self._cut.nodes(is_backward):
            if names.split()[0] == "aten::copy_":
                names = "aten::copy"
                self.written.append((args[0].index, results[0], types[0]))
            names = " ".join(_EMPTY.get(n, n) for n in names.split())
            made.append((names, target, args, results, types))
        return made

    def outputs(self, is_backward: bool) -> list[Any]:
        """What lies in a written argument lies in its new contents."""
        contents = {argument: value for argument, value, _ in self.written}

        def moved(memory: Any) -> Any:
            if not isinstance(memory, tuple) or not isinstance(memory[0], _inkle.Value):
                return memory
            return contents.get(memory[0].index, memory[0]), memory[1]

        outputs = [(v, t, moved(memory)) for v, t, memory in self._cut.outputs(is_backward)]
        return outputs + [(v, t, "own") for _, v, t in self.written]

    def sharing(self) -> list[Any]:
        """For each result a name of its storage: equal where two are in one, None for any. Of an
        argument its number among the tensors."""
        values = (e.index for e in self.inputs(False) if isinstance(e, _inkle.Value))
        arguments = {index: number for number, index in enumerate(values)}
        names: list[Any] = []
        for number, (_, _, memory) in enumerate(self.outputs(False)):
            if isinstance(memory, str):
                names.append(("own", number) if memory == "own" else None)
            elif isinstance(memory[0], int):
                names.append(("storage", memory[0]))
            else:
                names.append(arguments.get(memory[0].index, ("value", memory[0].index)))
        return names


def _tensor(data: memoryview, place: dict[str, Any]) -> torch.Tensor:
    dtype = NAMED_DTYPES[place["dtype"]]
    count = torch.Size(place["sizes"]).numel()
    if count == 0:
        return torch.empty(place["sizes"], dtype=dtype)
    raw = bytearray(data[place["at"] : place["at"] + count * dtype.itemsize])
    return torch.frombuffer(raw, dtype=dtype).reshape(place["sizes"])


def _inputs(cut: Program, program: dict[str, Any], data: memoryview) -> list[Any]:
    """Tensors, with the strides of the graph, and the values of symbols."""
    tensors = iter(program.get("inputs") or [])
    symbols = program.get("symbols") or {}
    found: list[Any] = []
    for entry, kind in zip(cut.inputs(False), cut.input_types(False)):
        if kind is None:
            found.append(symbols[str(entry)])
            continue
        dense = _tensor(data, next(tensors))
        strides = [size_of(s, symbols) for s in kind[2]]
        found.append(torch.empty_strided(dense.shape, strides, dtype=dense.dtype).copy_(dense))
    return found


def _difference(got: Any, wanted: torch.Tensor, allowed: torch.Tensor) -> str:
    if not isinstance(got, torch.Tensor):
        return f"a {type(got).__name__}"
    if got.dtype != wanted.dtype or got.shape != wanted.shape:
        return f"{got.dtype} {list(got.shape)}, not {wanted.dtype} {list(wanted.shape)}"
    if got.numel() == 0:
        return ""
    a, b = got.flatten(), wanted.flatten()
    same = (a == b) | ((a != a) & (b != b)) | allowed.isinf()
    if a.is_floating_point():  # an infinity lies as far as the largest number
        a = a.clamp(torch.finfo(a.dtype).min, torch.finfo(a.dtype).max)
    distance = (a.double() - b.double()).abs()
    bad = ~(same | (distance <= allowed))
    if not bad.any():
        return ""
    at = int(bad.nonzero()[0])
    return f"element {at}: {b[at]} is {a[at]}, {allowed[at]:.3g} allowed"


def _unshared(names: list[Any], results: list[Any], arguments: list[torch.Tensor]) -> str:
    """Which results do not share memory with each other and with arguments as their names say, ""
    if all do; then writes to each, and says which others change that must not, or do not."""
    tensors = [*results, *arguments]
    names = [*names, *range(len(arguments))]
    places = [t.untyped_storage().data_ptr() if _has_memory(t) else None for t in tensors]
    for i, a in enumerate(places):
        for j in range(i):
            if None in (a, places[j], names[i], names[j]) or j >= len(results):
                continue
            if (a == places[j]) != (names[i] == names[j]):
                return f"results {j} and {i} share memory: {a == places[j]}"
    for number, result in enumerate(results):
        if places[number] is None or any(t == 0 < s - 1 for s, t in zip(result.shape, result.stride())):
            continue
        before = [t.clone() if isinstance(t, torch.Tensor) else t for t in tensors]
        result.copy_((result == 0).to(result.dtype))  # every element becomes another
        for other, (was, now) in enumerate(zip(before, tensors)):
            if places[other] is None or names[other] is None or names[number] is None:
                continue
            changed = not bool(((was == now) | ((was != was) & (now != now))).all())
            if changed and names[other] != names[number]:
                return f"a write to result {number} changes {other}"
            if other == number and not changed:
                return f"a write to result {number} does not change it"
    return ""


def _has_memory(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.numel() > 0


class Untraced(Exception):
    """A program that looks at values on its way, or that torch's own tracing has errors in."""


def _compiled(half: EagerGraph, given: list[Any]) -> list[Any]:
    """The results of a second call of the traced program, compiled."""
    torch._dynamo.reset()
    inkle.reset()
    tensors = [t for t in given if isinstance(t, torch.Tensor)]

    def call(*arguments: torch.Tensor) -> list[Any]:
        left = iter(arguments)
        return half([next(left) if isinstance(g, torch.Tensor) else g for g in given])

    try:
        traced = make_fx(call)(*tensors)
    except RuntimeError as error:
        raise Untraced(str(error)) from error
    run = torch.compile(traced, backend="inkle", dynamic=False)
    with torch.no_grad():
        try:
            run(*tensors)
        except torch._dynamo.exc.TorchRuntimeError as error:
            raise Untraced(str(error)) from error
        return list(run(*tensors))


def run(program: dict[str, Any], data: memoryview, device: str, compiled: bool) -> str:
    """What differs, or ""."""
    graph = Program(program["text"])
    given = _inputs(graph, program, data)
    given = [g.to(device) if isinstance(g, torch.Tensor) else g for g in given]
    half = EagerGraph(graph, False, [])
    results = _compiled(half, given) if compiled else half(given)
    count = len(results) - len(graph.written)
    after = {place: value for (place, _, _), value in zip(graph.written, results[count:])}
    entries = [e for e in graph.inputs(False) if isinstance(e, _inkle.Value)]
    before = [t for t in given if isinstance(t, torch.Tensor)]
    found = results[:count] + [after.get(e.index, t) for e, t in zip(entries, before)]
    if len(found) != len(program["results"]):
        return f"{len(found)} results, not {len(program['results'])}"
    for number, (got, place) in enumerate(zip(found, program["results"])):
        wanted = _tensor(data, place)
        allowed = _tensor(data, {**place, "dtype": "f64", "at": place["allowed"]}).flatten()
        got = got.cpu() if isinstance(got, torch.Tensor) else got
        if different := _difference(got, wanted, allowed):
            return f"result {number}: {different}"
    return _unshared(graph.sharing()[:count], results[:count], before)


def _strides_attention(text: str) -> bool:
    """Whether torch's flash attention of CPUs reads a tensor whose last stride is not 1. It is wrong then, and
    ``scaled_dot_product_attention`` does not call it."""
    for call in re.findall(r" = _scaled_dot_product_flash_attention_for_cpu\(([^)]*)\)", text):
        for name in re.findall(r"%\w+", call)[:3]:
            if re.search(re.escape(name) + r": \w+\[[^\]]*\]\{(?:[^}]*,)?(?!1\})[^,}]+\}", text):
                return True
    return False


def _judge(
    program: dict[str, Any], data: memoryview, device: str, compiled: bool
) -> tuple[str, str]:
    """("right" | "differs" | "refused" | "left out", what to print)."""
    if any(op in program["text"] for op in _UNSPECIFIED) or _strides_attention(program["text"]):
        return "left out", ""
    try:
        text = run(program, data, device, compiled)
    except Untraced:
        return "left out", ""
    except Exception as error:  # noqa: BLE001: what has no kernel in eager, or an error
        return "refused", " ".join(str(error).split())[:400]
    return ("differs", f"{text}\n{program['text']}") if text else ("right", "")


def _in_child(
    programs: list[dict[str, Any]], data: memoryview, device: str, compiled: bool
) -> list[tuple[str, str]]:
    """What comes of the programs in a process of their own, up to one that ends it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        torch.set_default_device(device)
        torch.backends.cudnn.allow_tf32 = False
        with os.fdopen(writer, "w") as answers:
            for program in programs:
                answers.write(json.dumps(_judge(program, data, device, compiled)) + "\n")
                answers.flush()
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answers:
        made = [tuple(json.loads(line)) for line in answers]
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if len(made) < len(programs):
        made.append(("refused", f"the process ends with signal {-status}"))
    return made


def _judge_all(
    programs: list[dict[str, Any]], data: memoryview, device: str, compiled: bool
) -> tuple[list[dict[str, Any]], collections.Counter[str]]:
    """Those that are right, and how many came out how; prints both and what is not right."""
    found: list[tuple[str, str]] = []
    while len(found) < len(programs):
        found += _in_child(programs[len(found) :], data, device, compiled)
    for program, (outcome, text) in zip(programs, found):
        if text:
            print(f"seed {program['seed']} {outcome}: {text}")
    count = collections.Counter(outcome for outcome, _ in found)
    print(f"{'compiled' if compiled else 'eager'}: {len(programs)} programs: {count['right']} right, "
          f"{count['differs']} differ, {count['refused']} refused, {count['left out']} left out",
          flush=True)  # fmt: skip
    return [p for p, (outcome, _) in zip(programs, found) if outcome == "right"], count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--compiled", action="store_true", help="by torch.compile, too")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--shard", default="0/1", help="i/n: each n-th program from the i-th")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with open(os.path.join(arguments.folder, "programs.json")) as file:
        programs = json.load(file)
    with open(os.path.join(arguments.folder, "data.bin"), "rb") as file:
        data = memoryview(file.read())
    first, step = map(int, arguments.shard.split("/"))
    programs = programs[first::step]
    right, eager = _judge_all(programs, data, arguments.device, False)
    is_wrong = eager["differs"] > 0 or eager["refused"] > len(programs) // 10
    if arguments.compiled:
        _, compiled = _judge_all(right, data, arguments.device, True)
        is_wrong = is_wrong or compiled["differs"] > 0 or compiled["refused"] > 0
    return 1 if is_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
