// The scans of a kernel's stages: running values along rows and columns.
#include <fmt/format.h>

#include "base/error.h"
#include "codegen/cuda/operation.h"
#include "codegen/cuda/reduce.h"
#include "codegen/cuda/stage.h"

namespace inkle::codegen::cuda {

using schedule::StageStore;
using sym::Expr;

// A row in chunks of team * lanes: each thread scans its lanes, the team scans the threads' totals,
// and the chunk's total is carried to the next.
void StageText::scan_rows(const Stage& stage, std::size_t pass) {
  if (blocks_.cluster > 1) unsupported("kernel {}: a scan by a cluster", kernel_.kernel.name);
  const Expr extent = stage.inner.front().extent;
  const bool wide = is_wide_extent(extent);
  const char* index = wide ? "i64" : "int";
  const std::string n = index_text(extent, symbols_, wide);
  const int lanes = blocks_.lanes;
  const std::string op = joiner(stage.reduce);
  const std::string type = type_of(stage.accumulator);
  const std::string none = empty_part(stage.reduce, stage.accumulator, false);
  const DType from = stage.body[stage.body.yields[0]].dtype;
  if (blocks_.team > 32) {
    out_.line("__shared__ {} slots[2][{}];", type, blocks_.team / 32);
    out_.raw("int side = 0;");
  }
  out_.line("{} carry = {};", type, none);
  const std::string skew = skew_of(stage).is_null() ? "" : " - skew";
  out_.open(fmt::format("for ({0} base = 0{3}; base < {1}; base += {2})", index, n,
                        blocks_.team * lanes, skew));
  out_.line("const {} j = base + t * {};", index, lanes);
  out_.line("{} w[{}];", type, lanes);
  out_.open(fmt::format("if (j < {})", n));
  const Place place = row_place(stage);
  BodyText body = body_of(stage, place, pass);
  body.write(out_, {0}, {}, [&](Writer& out, const auto& yields, const std::string& active) {
    const std::string x = cast_text(yields[0], from, stage.accumulator);
    const std::string at = place.lanes > 1 ? "l" : "0";
    if (active.empty())
      out.line("w[{}] = {};", at, x);
    else
      out.line("w[{}] = {} ? {} : {};", at, active, x, none);
  });
  out_.close();
  out_.open("else");
  out_.line("#pragma unroll");
  out_.line("for (int l = 0; l < {}; ++l) w[l] = {};", lanes, none);
  out_.close();
  out_.line("#pragma unroll");
  out_.line("for (int l = 1; l < {}; ++l) w[l] = {}::join(w[l - 1], w[l]);", lanes, op);
  if (blocks_.team > 32) {
    out_.line("const {} before = scan_block<{}, {}>(w[{}], slots[side], carry);", type, op,
              blocks_.team, lanes - 1);
    out_.raw("side ^= 1;");
  } else {
    out_.line("const {} before = scan_warp<{}, {}>(w[{}], carry);", type, op, blocks_.team,
              lanes - 1);
  }
  out_.open(fmt::format("if (j < {})", n));
  BodyText after(kernel_, stage.body, place);
  after.write(out_, {}, stage.stores, [&](Writer& out, const auto&, const auto&) {
    const std::string value =
        fmt::format("{}::join(before, w[{}])", op, place.lanes > 1 ? "l" : "0");
    out.line("const {} running = {};", type, value);
    for (const StageStore& store : stage.stores) {
      after.store_text(out, store, "running", stage.accumulator);
    }
  });
  out_.close();
  out_.close();
}

void StageText::scan_columns(const Stage& stage, std::size_t pass) {
  if (blocks_.team > 1) unsupported("kernel {}: a scan by a team", kernel_.kernel.name);
  const std::string type = type_of(stage.accumulator);
  const std::string none = empty_part(stage.reduce, stage.accumulator, false);
  const DType from = stage.body[stage.body.yields[0]].dtype;
  out_.line("{} part[{}];", type, blocks_.lanes);
  out_.line("#pragma unroll");
  out_.line("for (int l = 0; l < {}; ++l) part[l] = {};", blocks_.lanes, none);
  positions(stage, false, [&](const Place& place) {
    BodyText body = body_of(stage, place, pass);
    body.write(out_, {0}, stage.stores, [&](Writer& out, const auto& yields, const std::string&) {
      const std::string x = cast_text(yields[0], from, stage.accumulator);
      const std::string at = fmt::format("part[{}]", place.lanes > 1 ? "l" : "0");
      out.line("{0} = {1}::join({0}, {2});", at, joiner(stage.reduce), x);
      for (const StageStore& store : stage.stores) {
        body.store_text(out, store, at, stage.accumulator);
      }
    });
  });
}

// A row that many blocks share, each a chunk of it. A warp has `chunk` accesses of its threads, one
// behind the other. What comes before the chunk is added up from the totals that other blocks have
// left in the workspace, in an order that depends on the chunk's number alone.
void StageText::scan_chunks(const Stage& stage, std::size_t pass) {
  const Expr extent = stage.inner.front().extent;
  const bool wide = is_wide_extent(extent);
  const char* index = wide ? "i64" : "int";
  const std::string n = index_text(extent, symbols_, wide);
  const int lanes = blocks_.lanes;
  const int count = blocks_.chunk;
  const int warps = blocks_.threads / 32;
  const std::string op = joiner(stage.reduce);
  const std::string type = type_of(stage.accumulator);
  const std::string none = empty_part(stage.reduce, stage.accumulator, false);
  const DType from = stage.body[stage.body.yields[0]].dtype;
  if (!skew_of(stage).is_null()) {
    unsupported("kernel {}: chunks of rows at odd places", kernel_.kernel.name);
  }
  const auto each = [&](const std::function<void()>& inside) {
    out_.line("#pragma unroll");
    out_.open(fmt::format("for (int k = 0; k < {}; ++k)", count));
    out_.line("const {} j = first + k * {};", index, 32 * lanes);
    inside();
    out_.close();
  };
  const Place place = row_place(stage);
  const std::string lane = place.lanes > 1 ? "l" : "0";
  out_.line("const {0} first = ({0})chunk * {1} + (t >> 5) * {2} + (t & 31) * {3};", index,
            blocks_.threads * lanes * count, 32 * lanes * count, lanes);
  out_.line("{} w[{}][{}];", type, count, lanes);
  each([&] {
    out_.open(fmt::format("if (j < {})", n));
    BodyText body = body_of(stage, place, pass);
    body.write(out_, {0}, {}, [&](Writer& out, const auto& yields, const std::string& active) {
      const std::string x = cast_text(yields[0], from, stage.accumulator);
      out.line("w[k][{}] = {};", lane,
               active.empty() ? x : fmt::format("{} ? {} : {}", active, x, none));
    });
    out_.close();
    out_.open("else");
    out_.line("#pragma unroll");
    out_.line("for (int l = 0; l < {}; ++l) w[k][l] = {};", lanes, none);
    out_.close();
  });
  out_.line("{} carry = {};", type, none);
  out_.line("scan_accesses<{}>(w, carry);", op);
  out_.line("__shared__ {} slots[3][{}];", type, warps);
  out_.line("{} total = {};", type, none);
  out_.line("{} before = warps_before<{}, {}>(carry, total, slots[0]);", type, op, warps);
  out_.line(
      "before = {0}::join(chunks_before<{0}, {1}>(cells, chunk, chunks, total, ({2}){3}, "
      "slots[1], slots[2]), before);",
      op, blocks_.threads, type, none);
  out_.raw(
      "if (last_of(counters + 1, gridDim.x)) clear_cells(counters, gridDim.x / chunks, chunks);");
  each([&] {
    out_.open(fmt::format("if (j < {})", n));
    BodyText after(kernel_, stage.body, place);
    after.write(out_, {}, stage.stores, [&](Writer& out, const auto&, const auto&) {
      out.line("const {} running = {}::join(before, w[k][{}]);", type, op, lane);
      for (const StageStore& store : stage.stores) {
        after.store_text(out, store, "running", stage.accumulator);
      }
    });
    out_.close();
  });
}

}  // namespace inkle::codegen::cuda
