"""Runs on a GPU what `INKLE_RECORD_DIR=folder test_driver --gtest_filter=CudaKernels.Record` wrote,
and compares with what the interpreter said:

    python bench/replay.py folder [part/parts]

`part/parts` runs every so many-th case, for several processes side by side. For compute-sanitizer set
PYTORCH_NO_CUDA_MEMORY_CACHING=1: each buffer is then an allocation of its own, of its exact size.
"""
import ctypes
import json
import os
import struct
import sys

import torch
from driver_api import check, cuda

TYPES = {"bool": torch.bool, "u8": torch.uint8, "i8": torch.int8, "i16": torch.int16,
         "i32": torch.int32, "i64": torch.int64, "f16": torch.float16, "bf16": torch.bfloat16,
         "f32": torch.float32, "f64": torch.float64}
TOLERANCE = {"f16": 2**-10, "bf16": 2**-7, "f32": 2e-5, "f64": 1e-11}


class Replay:
    def __init__(self, folder):
        self.folder = folder
        self.data = open(os.path.join(folder, "data.bin"), "rb").read()
        self.modules = {}
        self.status = torch.zeros(1, dtype=torch.int32, device="cuda")

    def function(self, image, entry):
        if image not in self.modules:
            code = open(os.path.join(self.folder, f"image{image}.cubin"), "rb").read()
            module = ctypes.c_void_p()
            check(cuda.cuModuleLoadData(ctypes.byref(module), code), "load")
            self.modules[image] = module
        function = ctypes.c_void_p()
        check(cuda.cuModuleGetFunction(ctypes.byref(function), self.modules[image],
                                       entry.encode()), entry)
        return function

    def tensor(self, place, dtype, sizes):
        at, size = place
        raw = bytearray(self.data[at:at + size]) or bytearray(16)
        flat = torch.frombuffer(raw, dtype=TYPES[dtype])
        count = 1
        for s in sizes:
            count *= s
        return flat[:count].reshape(sizes)

    def run(self, case):
        buffers = []
        for b in case["buffers"]:
            span = 1 + sum(max(s - 1, 0) * t for s, t in zip(b["sizes"], b["strides"]))
            if "alias" in b:
                memory = buffers[b["alias"]]
            else:
                dtype = TYPES[b["dtype"]]
                memory = torch.full((max(span, 1) * dtype.itemsize,), 0x5A, dtype=torch.uint8,
                                    device="cuda").view(dtype)
                if dtype == torch.bool:
                    memory.zero_()
            if "data" in b and 0 not in b["sizes"]:
                memory.as_strided(b["sizes"], b["strides"]).copy_(
                    self.tensor(b["data"], b["dtype"], b["sizes"]))
            buffers.append(memory)
        self.status.zero_()
        for launch in case["launches"]:
            blocks = sum(launch["blocks"])
            if blocks == 0:
                continue
            values = [ctypes.c_void_p(buffers[b].data_ptr()) for b in launch["buffers"] or []]
            values += [ctypes.c_int64(s) for s in launch["sizes"] or []]
            if len(launch["blocks"]) > 1:  # a table: abi/plan.h
                words = [v.value or 0 for v in values]
                first = [sum(launch["blocks"][:i]) for i in range(len(launch["blocks"]) + 1)]
                table = struct.pack(f"{len(words)}Q{len(first)}I", *words, *first)
                values = [ctypes.create_string_buffer(table, (len(table) + 7) // 8 * 8)]
            if launch.get("workspace"):
                zeros = torch.zeros(launch["workspace"], dtype=torch.uint8, device="cuda")
                values.append(ctypes.c_void_p(zeros.data_ptr()))
            values.append(ctypes.c_void_p(self.status.data_ptr()))
            pointers = (ctypes.c_void_p * len(values))(
                *[ctypes.cast(ctypes.pointer(v), ctypes.c_void_p) for v in values])
            function = self.function(launch["image"], launch["entry"])
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            check(cuda.cuLaunchKernel(function, blocks, 1, 1, launch["threads"], 1, 1, 0,
                                      stream, pointers, None), "launch")
            if launch.get("workspace") and zeros.any():
                return f"{launch['entry']} leaves its workspace changed"
            if os.environ.get("INKLE_REPLAY_EACH"):  # a fault is that of the last line
                print(case["name"], launch["entry"], flush=True)
                torch.cuda.synchronize()
        torch.cuda.synchronize()
        if self.status.item() != 0:
            return f"status {self.status.item()}"
        for o in case["outputs"]:
            dtype = case["buffers"][o["buffer"]]["dtype"]
            if 0 in o["sizes"]:
                continue
            got = buffers[o["buffer"]].as_strided(o["sizes"], o["strides"], o["offset"]).cpu()
            want = self.tensor(o["data"], dtype, o["sizes"])
            if dtype not in TOLERANCE:
                if not torch.equal(got, want):
                    return f"{(got != want).sum().item()} of {want.numel()} {dtype} differ"
                continue
            got, want = got.double(), want.double()
            finite = torch.isfinite(want)
            scale = want[finite].abs().max().item() if finite.any() else 0
            limit = TOLERANCE[dtype] * (want.abs() + 0.1 * max(scale, 0.05))
            off = ~((got - want).abs() <= limit) & (got != want)
            off &= ~(got.isnan() & want.isnan())
            if off.any():
                where = off.flatten().nonzero()[0].item()
                return (f"{off.sum().item()} of {want.numel()} {dtype} off, at {where}: "
                        f"{got.flatten()[where].item()} instead of {want.flatten()[where].item()}")
        return None


def main():
    torch.zeros(1, device="cuda")
    replay = Replay(sys.argv[1])
    cases = json.load(open(os.path.join(sys.argv[1], "cases.json")))
    part, _, parts = (sys.argv[2] if len(sys.argv) > 2 else "0/1").partition("/")
    cases = cases[int(part)::int(parts)]
    wrong = 0
    for case in cases:
        why = replay.run(case)
        if why is not None:
            wrong += 1
            print(f"{case['name']}: {why}", flush=True)
    print(f"{len(cases)} cases, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
