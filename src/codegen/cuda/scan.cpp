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

}  // namespace inkle::codegen::cuda
