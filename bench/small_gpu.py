"""GPU time of small models, whose kernels take as long as their launches.

    python bench/small_gpu.py                                  in bf16
    python bench/small_gpu.py --models llama --dtype f32 --json times.json

The models of bench/eight.py at batches of a few rows: a call under CUDA graphs (mode
"reduce-overhead"), and a training step that torch.cuda.graph has captured, each the median of
blocks of calls between two events, three times. To compare two builds, run each in turns, with its
python folder in PYTHONPATH.
"""

from __future__ import annotations

import argparse
import json
from typing import Any, Callable

import torch

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
TIMES = 3  # blocks of calls
SECONDS = 0.4  # of one


def inference(model: torch.nn.Module, inputs: list[torch.Tensor]) -> Callable[[], Any]:
    run = torch.compile(model.eval(), backend="inkle", mode="reduce-overhead")

    def call() -> None:
        with torch.no_grad():
            run(*inputs)

    return call


def training(model: torch.nn.Module, inputs: list[torch.Tensor]) -> Callable[[], Any]:
    """A step without dropout, whose states are no part of what is measured."""
    for module in model.train().modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    run = torch.compile(model, backend="inkle")

    def step() -> None:
        run(*inputs).float().square().mean().backward()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    model.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def measure(name: str, dtype: str, make: Callable[..., Any]) -> list[float]:
    """Microseconds of a call, by block of calls."""
    import eight
    import gpu_models

    torch._dynamo.reset()
    torch.manual_seed(0)
    case = eight.make(name).to(DTYPES[dtype])
    call = make(case.model.cuda(), [x.cuda() for x in case.inputs])
    return [round(1e3 * gpu_models.milliseconds(call, SECONDS), 1) for _ in range(TIMES)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="llama,minilm,gpt2", help="names, with commas")
    parser.add_argument("--dtype", choices=sorted(DTYPES), default="bf16")
    parser.add_argument("--json", default="", help="file for all times")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("torch sees no GPU")
    found: dict[str, list[float] | str] = {}
    for name in arguments.models.split(","):
        for make in (inference, training):
            times: list[float] | str
            try:
                times = measure(name, arguments.dtype, make)
            except Exception as error:  # noqa: BLE001: the other rows still count
                times = f"{type(error).__name__}: {error}"[:200]
            found[f"{name}, {make.__name__}"] = times
            print(f"{name}, {make.__name__}: {times}", flush=True)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
