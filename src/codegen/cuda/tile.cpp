// Elementwise stages of which some operands lie along the last outer loop and others along the one
// before it: what lies the other way is read as it lies, whole accesses at a time, and turned
// around on the chip.
#include <algorithm>

#include "base/error.h"
#include "codegen/cuda/stage.h"

namespace inkle::codegen::cuda {

using loop::Instruction;
using loop::Opcode;
using schedule::StageStore;
using sym::Expr;

namespace {

// Registers of a thread for what it reads ahead of the barrier.
constexpr std::int64_t kAheadRegisters = 48;

}  // namespace

std::vector<StageText::Ahead> StageText::turned_loads(const Stage& stage, const Place& place) {
  BodyText body(kernel_, stage.body, place);
  std::vector<Ahead> found;
  for (loop::Val v = 0; v < stage.body.instructions.size(); ++v) {
    const Instruction& i = stage.body[v];
    // What is the same for all columns (the index of a looked-up row) has nothing to turn.
    if (!is_of_place(i) || !sym::contains(i.indices.front(), columns_)) continue;
    if (const auto text = body.pack_text(v)) {
      found.push_back({v, fmt::format("c{}", kernel_.names++), *text});
    }
  }
  return found;
}

// A load without a condition whose place is known without other values.
bool StageText::is_of_place(const Instruction& load) const {
  if (load.opcode != Opcode::load || load.operand_count != 0) return false;
  const auto symbols = sym::symbols(load.indices.front());
  return std::all_of(symbols.begin(), symbols.end(),
                     [&](Expr s) { return symbols_.contains(s.node()); });
}

void StageText::store_all(const Stage& stage, BodyText& body) {
  std::vector<std::uint32_t> wanted;
  for (const StageStore& store : stage.stores) wanted.push_back(store.yield);
  body.write(out_, wanted, stage.stores, [&](Writer& out, const auto&, const auto&) {
    for (const StageStore& store : stage.stores) body.store_yield(out, store);
  });
}

void StageText::tile(const Stage& stage) {
  if (blocks_.side != 0)
    tile_of_block(stage);
  else
    tile_of_thread(stage);
}

// Each thread has a square of `lanes` rows of `lanes` elements. What lies along the other way is
// loaded along that and turned around in registers.
void StageText::tile_of_thread(const Stage& stage) {
  const int lanes = blocks_.lanes;
  const Expr along = kernel_.loops.outer[kernel_.loops.outer.size() - 2].variable;
  Place place = column_place();
  Place other = place;
  other.lane = along;
  other.symbols[columns_.node()] = {"(a + i)", false};
  const std::vector<Ahead> turned = turned_loads(stage, other);
  for (const Ahead& load : turned) {
    const std::string type = type_of(stage.body[load.value].dtype);
    out_.line("Pack<{}, {}> {}[{}];", type, lanes, load.name, lanes);
    out_.line("#pragma unroll");
    out_.line("for (int i = 0; i < {}; ++i) {}[i] = {};", lanes, load.name, load.text);
  }
  place.symbols[along.node()] = {"(b + q)", false};
  out_.line("#pragma unroll");
  out_.open(fmt::format("for (int q = 0; q < {}; ++q)", lanes));
  BodyText body(kernel_, stage.body, place);
  for (const Ahead& load : turned) body.know(load.value, load.name + "[l].at[q]");
  store_all(stage, body);
  out_.close();
}

void StageText::unsupported_tile() const {
  unsupported("kernel {}: tiles of {} by {} in blocks of {}", kernel_.kernel.name, blocks_.side,
              blocks_.side, blocks_.threads);
}

// A block has a square of `side` rows of `side` elements, which its threads read as they lie, put
// into shared memory and take out of it along the rows.
void StageText::tile_of_block(const Stage& stage) {
  const int lanes = blocks_.lanes;
  const int side = blocks_.side;
  const std::int64_t all = std::int64_t{side} * side / lanes;
  const std::int64_t count = all / blocks_.threads;
  // What the prelude's Square takes: 8 threads side by side, 8 times 16 bytes of a row, and as many
  // accesses of a thread as make words.
  const auto fits = [&](std::int64_t size) {
    return side * size % 128 == 0 && count % std::max<std::int64_t>(4 / size, 1) == 0;
  };
  if (side % (8 * lanes) != 0 || all % blocks_.threads != 0) unsupported_tile();
  Place place = column_place();
  Place other = place;
  other.ahead = true;
  other.lane = kernel_.loops.outer[kernel_.loops.outer.size() - 2].variable;
  const std::vector<Ahead> turned = turned_loads(stage, other);
  const auto registers = [&](loop::Val v) {
    return count * lanes * abi::size_of(stage.body[v].dtype) / 4;
  };
  std::int64_t shared = 0;
  std::int64_t ahead = 0;
  for (const Ahead& load : turned) {
    const DType dtype = stage.body[load.value].dtype;
    if (!fits(abi::size_of(dtype))) unsupported_tile();
    shared += std::int64_t{side} * side * abi::size_of(dtype);
    ahead += registers(load.value);
    out_.line("__shared__ Square<{}, {}, {}, {}> square_{};", type_of(dtype), lanes, side,
              blocks_.threads, load.name);
    out_.line("Pack<{}, {}> {}[{}];", type_of(dtype), lanes, load.name, count);
    each_access("square_" + load.name, [&] { out_.line("{}[k] = {};", load.name, load.text); });
  }
  if (shared > kStaticShared) unsupported_tile();
  BodyText body(kernel_, stage.body, place);
  place.ahead = true;
  BodyText before(kernel_, stage.body, place);
  std::vector<Ahead> early;
  for (loop::Val v = 0; v < stage.body.instructions.size(); ++v) {
    const bool is_turned = std::any_of(turned.begin(), turned.end(),
                                       [&](const Ahead& load) { return load.value == v; });
    if (is_turned || !is_of_place(stage.body[v]) || ahead + registers(v) > kAheadRegisters)
      continue;
    const auto text = before.pack_text(v);
    if (!text) continue;
    ahead += registers(v);
    early.push_back({v, fmt::format("d{}", kernel_.names++), *text});
    out_.line("Pack<{}, {}> {}[{}];", type_of(stage.body[v].dtype), lanes, early.back().name,
              count);
  }
  if (!early.empty()) {
    each_access("", [&] {
      for (const Ahead& load : early) out_.line("{}[k] = {};", load.name, load.text);
    });
  }
  for (const Ahead& load : turned) out_.line("square_{0}.put({0});", load.name);
  if (!turned.empty()) out_.raw("__syncthreads();");
  each_access("", [&] {
    for (const Ahead& load : turned) {
      out_.line("const Pack<{}, {}> row_{} = square_{}.get(n);",
                type_of(stage.body[load.value].dtype), lanes, load.name, load.name);
      body.know(load.value, fmt::format("row_{}.at[l]", load.name));
    }
    for (const Ahead& load : early) body.know(load.value, load.name + "[k].at[l]");
    store_all(stage, body);
  });
}

// The loop over a thread's accesses to its block's tile: those along the loop before the last, as
// the square wants them, or (no square) those along the last one, row by row.
void StageText::each_access(const std::string& square, const std::function<void()>& f) {
  const auto& outer = kernel_.loops.outer;
  const int side = blocks_.side;
  const std::int64_t count = std::int64_t{side} * side / blocks_.lanes / blocks_.threads;
  out_.line("#pragma unroll");
  out_.open(fmt::format("for (int k = 0; k < {}; ++k)", count));
  if (square.empty()) {
    out_.line("const u32 n = threadIdx.x + k * {};", blocks_.threads);
    out_.line("const int a = across * {} + n % {} * {};", side, side / blocks_.lanes,
              blocks_.lanes);
    out_.line("const int b = down * {} + n / {};", side, side / blocks_.lanes);
  } else {
    out_.line("const int a = across * {} + {}.a_of(k);", side, square);
    out_.line("const int b = down * {} + {}.b_of(k);", side, square);
  }
  std::string inside;
  const auto limit = [&](const char* at, Expr extent) {
    if (sym::divides(side, extent)) return;
    inside += fmt::format("{}{} < {}", inside.empty() ? "" : " && ", at,
                          index_text(extent, symbols_, false));
  };
  limit("a", outer.back().extent);
  limit("b", outer[outer.size() - 2].extent);
  if (!inside.empty()) out_.open(fmt::format("if ({})", inside));
  f();
  if (!inside.empty()) out_.close();
  out_.close();
}

}  // namespace inkle::codegen::cuda
