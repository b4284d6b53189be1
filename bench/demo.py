"""The main job: sentence embeddings with the real weights of all-MiniLM-L6-v2.

    scripts/demo            set-up, then this file

Embeds a few dozen sentences through ``torch.compile(model, backend="inkle")``, prints the best
matches of some queries, then compares eager, TorchInductor and Inkle on one batch of 8 x 128.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import common
import eight

SENTENCES = [
    "The bakery on the corner sells rye bread and warm cinnamon rolls every morning.",
    "My grandmother taught me to make dumplings when I was six years old.",
    "Add a pinch of salt to the chocolate to make the flavour deeper.",
    "The soup needs another twenty minutes on a low flame.",
    "She ordered a mushroom pizza and a glass of cold lemonade.",
    "Our train to Vienna was delayed by almost two hours because of snow.",
    "The airline lost my suitcase somewhere between Lisbon and Oslo.",
    "We rented bicycles and rode along the river until sunset.",
    "The mountain hut has no electricity, so bring a head torch.",
    "Passengers should be at the gate forty minutes before departure.",
    "The central bank raised its interest rate by a quarter of a point.",
    "Shares of the car maker fell after it reported weaker sales.",
    "Rents in the city have doubled within ten years.",
    "He put his savings into government bonds instead of stocks.",
    "The company will hire two hundred engineers next year.",
    "A vaccine trains the immune system to recognise a virus.",
    "Walking half an hour a day lowers the risk of heart disease.",
    "The nurse changed the bandage and checked his temperature.",
    "Too little sleep makes it harder to concentrate and to remember.",
    "The dentist told me to stop drinking so much soda.",
    "The telescope photographed a galaxy thirteen billion light years away.",
    "Water expands when it freezes, which is why pipes burst in winter.",
    "Bees find their way home by the position of the sun.",
    "The volcano covered the nearby villages in grey ash.",
    "Octopuses can change the colour and the texture of their skin.",
    "A compiler turns source code into instructions that a processor can run.",
    "The server crashed because the disk was full of log files.",
    "She wrote a program that sorts a million records in under a second.",
    "Never reuse the same password on two different websites.",
    "The laptop's battery lasts about nine hours.",
    "The striker scored twice in the last five minutes of the final.",
    "Heavy rain interrupted the tennis match in the third set.",
    "She won the marathon although she had started training only in spring.",
    "The goalkeeper broke a finger and will miss the rest of the season.",
    "The orchestra rehearsed the slow movement three times.",
    "He plays the saxophone in a small jazz club on Fridays.",
    "The museum shows drawings that the painter made as a child.",
    "The last chapter of the novel explains who sent the letters.",
    "The film won four prizes, among them the one for best music.",
    "Our cat sleeps on the keyboard as soon as I leave the desk.",
]
QUERIES = [
    "How do computers execute what programmers write?",
    "Travel problems caused by the weather",
    "advice for staying healthy",
    "Something sweet to eat",
    "money and the economy",
    "an injured football player",
]
SYSTEMS = ("eager", "inductor", "inkle")


def load() -> tuple[Any, Any]:
    """(model, tokenizer) from the package with the real weights."""
    import logging

    from transformers import AutoModel, AutoTokenizer
    from transformers import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    logging.getLogger("transformers").setLevel(logging.ERROR)
    folder = eight.minilm_folder()
    return AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)


def embed(model: Any, tokenizer: Any, texts: list[str], batch: int = 8) -> Any:
    """Unit vectors [texts, 384]: the mean over the tokens of each text, as the model was trained.

    Every batch is padded to the same length, so that one compiled graph serves all.
    """
    import torch

    parts = []
    for begin in range(0, len(texts), batch):
        chunk = texts[begin : begin + batch]
        rows = chunk + [""] * (batch - len(chunk))
        tokens = tokenizer(rows, padding="max_length", max_length=128, truncation=True,
                           return_tensors="pt")  # fmt: skip
        with torch.no_grad():
            hidden = model(input_ids=tokens["input_ids"],
                           attention_mask=tokens["attention_mask"])[0]  # fmt: skip
        mask = tokens["attention_mask"].unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * mask).sum(1) / mask.sum(1)
        parts.append(torch.nn.functional.normalize(mean, dim=1)[: len(chunk)])
    return torch.cat(parts)


def search(threads: int) -> None:
    import torch

    import inkle

    torch.set_num_threads(threads)
    model, tokenizer = load()
    compiled = torch.compile(model, backend="inkle")
    start = time.perf_counter()
    library = embed(compiled, tokenizer, SENTENCES)
    questions = embed(compiled, tokenizer, QUERIES)
    seconds = time.perf_counter() - start
    print(f"{len(SENTENCES)} sentences and {len(QUERIES)} queries embedded by Inkle in "
          f"{seconds:.1f} s, compiling included\n")  # fmt: skip
    for text, row in zip(QUERIES, questions @ library.T):
        print(f"  {text}")
        for score, index in zip(*torch.topk(row, 3)):
            print(f"    {score:.2f}  {SENTENCES[index]}")
    if any(not r.compiled for r in inkle.reports()):
        print("\n  note: a graph ran in eager:", inkle.reports()[0].reason)
    print()


# --- The comparison: each system cold in its own process, then all warm in one --------------------


def _batch(tokenizer: Any) -> dict[str, Any]:
    rows = [" ".join(SENTENCES[i::8] * 3) for i in range(8)]  # long enough for 128 tokens each
    tokens = tokenizer(rows, padding="max_length", max_length=128, truncation=True,
                       return_tensors="pt")  # fmt: skip
    return {k: tokens[k] for k in ("input_ids", "attention_mask")}


def _compiled(system: str, model: Any) -> Any:
    import torch

    if system == "eager":
        return model
    if system == "inductor":
        return torch.compile(model)
    import inkle  # noqa: F401: registers the backend

    return torch.compile(model, backend="inkle")


def cold(system: str, threads: int) -> dict[str, Any]:
    """The first call of a system in this fresh process."""
    import torch

    torch.set_num_threads(threads)
    model, tokenizer = load()
    inputs = _batch(tokenizer)
    with torch.no_grad():
        expected = model(**inputs)[0]
        call = _compiled(system, model)
        start = time.perf_counter()
        got = call(**inputs)[0]
        seconds = time.perf_counter() - start
        result: dict[str, Any] = {"first_call": seconds}
        result["error"] = (got - expected).abs().max().item()
        call(**inputs)
        result["peak"] = common.peak_bytes_of(lambda: call(**inputs))
    if system == "inkle":
        import inkle

        reports = inkle.reports()
        result |= {"own": sum(r.seconds for r in reports),
                   "kernels": sum(r.kernels for r in reports),
                   "eager": sorted({op for r in reports for op, _, _ in r.eager}),
                   "fallbacks": [r.reason for r in reports if not r.compiled]}  # fmt: skip
    return result


def warm(threads: int, rounds: int) -> dict[str, Any]:
    """Milliseconds a batch of every system, in turns, in this process."""
    import torch

    torch.set_num_threads(threads)
    model, tokenizer = load()
    inputs = _batch(tokenizer)
    times: dict[str, list[float]] = {s: [] for s in SYSTEMS}
    with torch.no_grad():
        calls = {}
        for system in SYSTEMS:
            try:
                call = _compiled(system, model)
                call(**inputs)
                calls[system] = call
            except Exception as error:  # noqa: BLE001: shown as missing
                print(f"{system}: {error}", file=sys.stderr)
        for _ in range(rounds):
            for system, call in calls.items():
                call(**inputs)
                begin = time.perf_counter()
                call(**inputs)
                times[system].append((time.perf_counter() - begin) * 1e3)
    return {s: [min(t), statistics.median(t)] for s, t in times.items() if t}


def _child(what: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Runs a part in a fresh process with an empty cache of Inductor's; {} where it failed."""
    with tempfile.TemporaryDirectory(prefix="demo-") as folder:
        environment = dict(os.environ, OMP_NUM_THREADS=str(arguments.threads),
                           TORCHINDUCTOR_CACHE_DIR=os.path.join(folder, "inductor"),
                           INKLE_CACHE_DIR=os.path.join(folder, "inkle"))  # fmt: skip
        command = [sys.executable, os.path.abspath(__file__), "--part", what,
                   "--threads", str(arguments.threads), "--rounds", str(arguments.rounds)]  # fmt: skip
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        print(f"demo: {what} failed: {last[:300]}", file=sys.stderr)
        return {}
    return json.loads(lines[-1])


def compare(arguments: argparse.Namespace) -> bool:
    """Prints the table; False where Inkle is missing or an op ran in eager."""
    progress = common.Progress(len(SYSTEMS) + 1, "demo")
    found = {}
    for system in SYSTEMS:
        progress.step(f"cold compile of {system}" if system != "eager" else "eager")
        found[system] = _child(system, arguments)
    progress.step("warm calls, in turns")
    ms = _child("warm", arguments)
    progress.end()
    names = {"eager": "eager", "inductor": "TorchInductor", "inkle": "Inkle"}
    rows = []
    for system in SYSTEMS:
        r = found[system]
        own, first = r.get("own"), r.get("first_call")
        is_inkle = system == "inkle" and bool(r)
        cells = [f"{ms[system][0]:.1f} / {ms[system][1]:.1f}" if system in ms else "-"]
        cells.append(f"{first:.2f}" if first and system != "eager" else "-")
        cells.append(f"{own:.2f}" if own is not None else "-")
        cells.append(f"{first - own:.2f}" if first and own is not None else "-")
        cells.append(f"{r['error']:.1e}" if r and system != "eager" else "-")
        cells.append(str(r["kernels"]) if is_inkle else "-")
        cells.append((", ".join(r["eager"]) or "none") if is_inkle else "-")
        cells.append(f"{r['peak'] / 2**20:.0f}" if r else "-")
        rows.append([names[system], *cells])
    print(common.table(["", "ms a batch, min / median", "first call, s", "Inkle's own, s",
                        "Dynamo and AOTAutograd, s", "largest error against eager",
                        "kernels generated", "ops in eager", "peak MiB beyond weights"], rows))  # fmt: skip
    print(f"\n{common.machine()}; {arguments.threads} threads, f32, batch 8 x 128, "
          f"{common.versions(['torch', 'transformers'])}")  # fmt: skip
    for reason in found["inkle"].get("fallbacks", []):
        print(f"a graph ran in eager: {reason}")
    inkle_found = found["inkle"]
    return bool(inkle_found) and not inkle_found["eager"] and not inkle_found["fallbacks"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--no-table", action="store_true", help="only the matches")
    parser.add_argument("--part", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        part = arguments.part
        found = warm(arguments.threads, arguments.rounds) if part == "warm" else cold(
            part, arguments.threads)  # fmt: skip
        print(json.dumps(found))
        return 0
    try:
        eight.minilm_folder()
    except FileNotFoundError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    search(arguments.threads)
    return 0 if arguments.no_table or compare(arguments) else 1


if __name__ == "__main__":
    sys.exit(main())
