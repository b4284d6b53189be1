"""Writes the stored sample programs, data/*.pt2: small modules, packed, without pickles and traces.

    make_samples.py [OUT]

Also the fuzz programs' corpora that are made of them (../fuzz/corpus). Weights are random but the
same every time.
"""

from __future__ import annotations

import io
import json
import pathlib
import struct
import sys
import zipfile

import numpy
import torch
from torch import nn
from torch.nn import functional as F

HERE = pathlib.Path(__file__).parent


class Mutations(nn.Module):
    """In-place ops through views, on inputs and on buffers; a dynamic size; nested outputs."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x, d):
        y = self.linear(x).relu_()
        y[1:3].add_(1)
        y.view(-1, 2, 2)[:, 0].mul_(2)
        y.t()[0].copy_(torch.tensor(3.0))
        a, b = y.split(2, 1)
        b.neg_()
        with torch.no_grad():
            z = a * 2
        d["q"].add_(1)
        self.count.add_(1)
        return {"o": a + 1, "l": [b, z.to(torch.float16), y.size(0) * 2], "n": y + self.count[0]}


class Tables(nn.Module):
    """Constants, index, einsum, padding and differences."""

    def forward(self, x, i):
        table = torch.arange(12.0).view(4, 3)
        e = torch.einsum("bik,bjk->bij", x, x)
        p = F.pad(x, (1, 2), value=0.5)
        return F.embedding(i, table), e, p, torch.diff(x, dim=-1), x[:, [0, 2]], x.mT.contiguous()


class Encoder(nn.Module):
    """One layer of a MiniLM: embeddings, attention, feed-forward, mean pooling."""

    def __init__(self, width=16, heads=2):
        super().__init__()
        self.words = nn.Embedding(32, width)
        self.places = nn.Embedding(16, width)
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.first = nn.Linear(width, 2 * width)
        self.second = nn.Linear(2 * width, width)
        self.heads = heads

    def forward(self, ids, mask):
        x = self.words(ids) + self.places(torch.arange(ids.size(1), device=ids.device))
        x = self.norm(x)
        b, t, w = x.shape
        q, k, v = (
            y.view(b, t, self.heads, w // self.heads).transpose(1, 2)
            for y in self.qkv(x).chunk(3, -1)
        )
        keep = mask[:, None, None, :].to(torch.bool)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=keep)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, w))
        x = x + self.second(F.gelu(self.first(x)))
        weights = mask.unsqueeze(-1).to(x.dtype)
        return (x * weights).sum(1) / weights.sum(1).clamp(min=1e-9)


class Decoder(nn.Module):
    """One block of a GPT-2: causal attention, tanh gelu, tied output weights."""

    def __init__(self, width=16, heads=2):
        super().__init__()
        self.words = nn.Embedding(32, width)
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.first = nn.Linear(width, 2 * width)
        self.second = nn.Linear(2 * width, width)
        self.heads = heads

    def forward(self, ids):
        x = self.words(ids)
        b, t, w = x.shape
        q, k, v = (
            y.view(b, t, self.heads, w // self.heads).transpose(1, 2)
            for y in self.qkv(self.norm(x)).split(w, 2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + y.transpose(1, 2).reshape(b, t, w)
        x = x + self.second(F.gelu(self.first(x), approximate="tanh"))
        return F.linear(x, self.words.weight)


class Residual(nn.Module):
    """A block of a ResNet with its stem and head."""

    def __init__(self, width=8):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.first = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.head = nn.Linear(width, 5)

    def forward(self, x):
        x = F.max_pool2d(self.relu(self.norm(self.stem(x))), 3, 2, 1)
        y = self.second_norm(self.second(self.relu(self.first_norm(self.first(x)))))
        y += x
        return self.head(torch.flatten(F.adaptive_avg_pool2d(self.relu(y), 1), 1))


class Tiny(nn.Module):
    """One weight "w" of 4x4: the program that fuzz/pt2_json_fuzz.cpp puts into an archive."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(4, 4))

    def forward(self, x):
        return torch.softmax(x @ self.w, -1)[1:].relu_()


class Integers(nn.Module):
    """An int that may be negative: its remainder, and itself where it is above 0."""

    def forward(self, x, n):
        return x + n % 5, x + max(n, 0), x * (n // 3)


def samples():
    dim = torch.export.Dim
    rows, words = dim("rows", min=4, max=64), dim("words", min=2, max=16)
    batch = dim("batch", max=64)
    x = torch.randn(8, 4)
    ids, mask = torch.randint(0, 32, (2, 6)), torch.ones(2, 6, dtype=torch.int64)
    return {
        "mutations": (Mutations(), (x, {"q": torch.ones(2)}), ({0: rows}, {"q": None})),
        "tables": (Tables(), (torch.randn(2, 3, 4), torch.tensor([[1, 3]])), None),
        "encoder": (Encoder(), (ids, mask), ({0: batch, 1: words}, {0: batch, 1: words})),
        "decoder": (Decoder(), (ids,), ({0: batch, 1: words},)),
        "residual": (Residual(), (torch.randn(2, 3, 32, 32),), ({0: batch},)),
        "integers": (Integers(), (torch.arange(8), -3), ({0: rows}, dim.DYNAMIC)),
        "tiny": (Tiny(), (torch.randn(6, 4),), None),
    }


def randomise(model: nn.Module) -> None:
    """Running statistics too, which are trivial after construction."""
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point() and "count" not in name:
                tensor.uniform_(0.5, 1.5) if "running" in name else tensor.normal_(0, 0.3)


def export(name: str):
    """The exported program, its arguments and eager's results on copies of them."""
    torch.manual_seed(0)
    model, args, dynamic = samples()[name]
    randomise(model)
    model.eval()
    with torch.no_grad():
        return torch.export.export(model, args, dynamic_shapes=dynamic), args


def packed(program: torch.export.ExportedProgram) -> bytes:
    """The archive, deflated, without the pickled sample inputs; of a node's metadata only its line."""
    raw = io.BytesIO()
    torch.export.save(program, raw)
    out = io.BytesIO()
    with zipfile.ZipFile(raw) as source, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as to:
        for info in source.infolist():
            content = source.read(info)
            name = "m" + info.filename[info.filename.index("/") :]
            if "/sample_inputs/" in name or "/.data/" in name:
                continue
            if name == "m/models/model.json":
                content = strip(json.loads(content))
            to.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def strip(program: dict) -> str:
    def clean(graph: dict) -> None:
        for node in graph["nodes"]:
            trace = node["metadata"].get("stack_trace", "")
            own = [l for l in trace.splitlines() if "make_samples.py" in l]
            line = own[-1].split("line ")[1].split(",")[0] if own else ""
            node["metadata"] = (
                {"stack_trace": f'File "samples.py", line {line}, in forward'} if line else {}
            )
            for argument in node["inputs"]:
                if "as_graph" in argument["arg"]:
                    clean(argument["arg"]["as_graph"]["graph"])

    clean(program["graph_module"]["graph"])
    program["guards_code"] = []
    return json.dumps(program, separators=(",", ":"))


def safetensors() -> bytes:
    header = json.dumps({
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
        "b": {"dtype": "I64", "shape": [], "data_offsets": [16, 24]},
        "c": {"dtype": "F16", "shape": [0, 3], "data_offsets": [24, 24]},
    }).encode()
    data = struct.pack("<4fq", 1, 2, 3, 4, 7)
    return struct.pack("<Q", len(header)) + header + data


def npy(array: numpy.ndarray) -> bytes:
    out = io.BytesIO()
    numpy.save(out, array)
    return out.getvalue()


def main() -> None:
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "data"
    out.mkdir(parents=True, exist_ok=True)
    corpus = HERE.parent / "fuzz" / "corpus"

    def seed(fuzzer: str, name: str, content: bytes) -> None:
        (corpus / fuzzer).mkdir(parents=True, exist_ok=True)
        (corpus / fuzzer / name).write_bytes(content)

    for name in samples():
        archive = packed(export(name)[0])
        (out / f"{name}.pt2").write_bytes(archive)
        if name == "mutations":
            seed("pt2_fuzz", f"{name}.pt2", archive)
        if name == "tiny":
            with zipfile.ZipFile(io.BytesIO(archive)) as source:
                seed("pt2_json_fuzz", "tiny.json", source.read("m/models/model.json"))
    seed("safetensors_fuzz", "three.safetensors", safetensors())
    seed("npy_fuzz", "f32.npy", npy(numpy.arange(6, dtype="f4").reshape(2, 3)))
    seed("npy_fuzz", "columns.npy", npy(numpy.asfortranarray(numpy.ones((2, 3), "i8"))))
    seed("npy_fuzz", "scalar.npy", npy(numpy.array(True)))


if __name__ == "__main__":
    main()
