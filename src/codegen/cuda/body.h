// Text of a body at one place of a kernel: a position of the loops, with a few neighbouring lanes.
//
//   const Pack<bf16, 8> a3 = load_constant<8, 8>(p0 + (8192 * i0 + j));   what all lanes share
//   for (int l = 0; l < 8; ++l) { const float v4 = to_f32(a3.at[l]); ... }  each lane
//   store<8>(p1 + ..., s0);                                                and what they store
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "codegen/cuda/text.h"
#include "schedule/kernel.h"

namespace inkle::codegen::cuda {

// What the parts of a kernel share while it is written.
struct KernelText {
  const schedule::Kernel& kernel;
  const schedule::LoopKernel& loops;
  sym::Context& context;
  bool rows_have_lanes = false;  // row values are packs, one element for each lane
  bool aliasing = false;         // memory that is read may be written by this kernel
  bool can_fail = false;
  std::vector<bool> written;  // parameters that this kernel writes
  // Text of scratch array n's element `offset`.
  std::function<std::string(std::uint32_t n, const std::string& offset)> scratch;
  int names = 0;  // for names that are unique in the kernel
  // Shared memory in which columns are reduced, one reduction after the other.
  std::int64_t slot_bytes = 0;
};

// Where a body runs.
struct Place {
  Symbols symbols;  // sizes, outer variables, the inner position; the lane variable at lane 0
  sym::Expr lane;   // the variable that grows from lane to lane; null if there is one lane
  int lanes = 1;
  bool aligned = true;  // the lane variable is a multiple of `lanes` at lane 0
  // If not aligned: an offset that is a multiple of `lanes` there, at lane variable 0.
  sym::Expr base;
  bool streams = false;  // what is read here once may pass by the first cache
  sym::Expr around;      // the inner loop along a column; null elsewhere
  bool ahead = false;    // loads stay before what follows them in the text
  bool leaves = false;   // what is stored here may leave the second cache first
  bool lasts = false;    // what is read here once leaves it last
  // Active lanes: first <= l < last (texts); empty: all. `whole`: condition that all are active.
  std::string first, last, whole;
};

class BodyText {
 public:
  BodyText(KernelText& kernel, const loop::Body& body, const Place& place);

  // The value is known: this text, in terms of lane l if `varying`.
  void know(loop::Val v, std::string text);
  // After v is computed, `text` = v.
  void capture(loop::Val v, std::string text);
  // Called inside the lanes' loop with the texts of the yields; `active` is the lane's condition,
  // empty if all lanes are active.
  using EachLane = std::function<void(Writer& out, const std::vector<std::string>& yields,
                                      const std::string& active)>;
  // Yields `wanted` are computed; stores are written at the end.
  void write(Writer& out, const std::vector<std::uint32_t>& wanted,
             const std::vector<schedule::StageStore>& stores, const EachLane& each_lane);
  // Inside the lanes' loop of write(): a store of its yield, or of another text of dtype `from`.
  void store_yield(Writer& out, const schedule::StageStore& store);
  void store_text(Writer& out, const schedule::StageStore& store, const std::string& text,
                  DType from);

  // Elements of the widest aligned access along the lanes; 0 if lanes are not neighbours there.
  [[nodiscard]] int access_width(std::uint32_t buffer, sym::Expr offset) const;
  // The load as one text of a pack, if it can be one: for loads ahead of their use.
  [[nodiscard]] std::optional<std::string> pack_text(loop::Val v);

 private:
  [[nodiscard]] bool depends_on_lane(sym::Expr e) const;
  [[nodiscard]] std::optional<sym::Expr> lane_stride(sym::Expr e) const;
  // e at lane 0, up to the group's number, where it grows by one from lane to lane.
  [[nodiscard]] std::optional<sym::Expr> first_of_neighbours(sym::Expr e) const;
  [[nodiscard]] std::string lane_active() const;
  [[nodiscard]] DType dtype_of(std::uint32_t buffer) const;
  [[nodiscard]] bool is_scratch(std::uint32_t buffer) const;
  [[nodiscard]] std::string element(std::uint32_t buffer, sym::Expr offset, bool in_lanes);
  [[nodiscard]] std::string offset_text(sym::Expr offset, bool in_lanes) const;
  [[nodiscard]] std::string name_of(loop::Val v, bool in_lanes);
  void analyse();
  void need(loop::Val v);
  void write_value(Writer& out, loop::Val v, bool in_lanes);
  [[nodiscard]] bool divides_by_one_number(loop::Val v) const;
  [[nodiscard]] bool is_rounded_exponential(loop::Val v) const;
  [[nodiscard]] std::optional<loop::Val> rounded_one_plus_erf(loop::Val v) const;
  [[nodiscard]] bool is_only_rounded(loop::Val v) const;
  std::optional<std::string> rounded_text(const loop::Instruction& i, bool in_lanes);
  void write_indirect(Writer& out, const loop::Instruction& i, loop::Val v, bool in_lanes);
  std::string load_text(const loop::Instruction& i, bool in_lanes);
  std::string validity(sym::Expr offset) const;
  [[nodiscard]] bool is_read_once(sym::Expr offset) const;
  bool make_pack(Writer& out, loop::Val v);
  bool make_random_pack(Writer& out, loop::Val v);
  void begin_stores(Writer& out, const std::vector<schedule::StageStore>& stores);
  void end_stores(Writer& out);

  struct PackedStore {
    const schedule::StageStore* store;
    std::string name;
    int width = 0;          // elements of an access
    bool narrowed = false;  // the array holds f32, made narrow in pairs
  };

  KernelText& kernel_;
  const loop::Body& body_;
  Place place_;
  Symbols lane_symbols_;  // as place.symbols, the lane variable in lane l
  std::vector<bool> varying_;
  std::vector<bool> needed_;
  std::map<loop::Val, std::string> known_;
  std::map<loop::Val, std::string> captures_;
  std::map<loop::Val, std::string> packs_;  // loads made before the lanes' loop
  std::map<const sym::Node*, loop::Val> indirect_;
  std::map<const sym::Node*, std::string> valid_;  // of symbols whose extent may be 0
  std::vector<PackedStore> packed_;
};

}  // namespace inkle::codegen::cuda
