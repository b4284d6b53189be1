#include "codegen/cpu/ir_operations.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/Module.h>

#include "base/error.h"

namespace inkle::codegen::cpu {

namespace {

Value* intrinsic(Ir& ir, llvm::Intrinsic::ID id, std::initializer_list<Value*> arguments) {
  return ir.builder().CreateIntrinsic(id, {(*arguments.begin())->getType()},
                                      llvm::ArrayRef<Value*>(arguments.begin(), arguments.size()));
}

llvm::CmpInst::Predicate integer_predicate(Compare c) {
  switch (c) {
    case Compare::eq:
      return llvm::CmpInst::ICMP_EQ;
    case Compare::ne:
      return llvm::CmpInst::ICMP_NE;
    case Compare::lt:
      return llvm::CmpInst::ICMP_SLT;
    case Compare::le:
      return llvm::CmpInst::ICMP_SLE;
    case Compare::gt:
      return llvm::CmpInst::ICMP_SGT;
    case Compare::ge:
      return llvm::CmpInst::ICMP_SGE;
    case Compare::ult:
      return llvm::CmpInst::ICMP_ULT;
    case Compare::ule:
      return llvm::CmpInst::ICMP_ULE;
    case Compare::ugt:
      return llvm::CmpInst::ICMP_UGT;
    case Compare::uge:
      return llvm::CmpInst::ICMP_UGE;
    case Compare::unordered:
      break;
  }
  INKLE_CHECK(false, "not a comparison of integers");
  return llvm::CmpInst::ICMP_EQ;
}

llvm::CmpInst::Predicate float_predicate(Compare c) {
  switch (c) {
    case Compare::eq:
      return llvm::CmpInst::FCMP_OEQ;
    case Compare::ne:
      return llvm::CmpInst::FCMP_UNE;
    case Compare::lt:
      return llvm::CmpInst::FCMP_OLT;
    case Compare::le:
      return llvm::CmpInst::FCMP_OLE;
    case Compare::gt:
      return llvm::CmpInst::FCMP_OGT;
    case Compare::ge:
      return llvm::CmpInst::FCMP_OGE;
    case Compare::unordered:
      return llvm::CmpInst::FCMP_UNO;
    case Compare::ult:
    case Compare::ule:
    case Compare::ugt:
    case Compare::uge:
      break;
  }
  INKLE_CHECK(false, "not a comparison of floats");
  return llvm::CmpInst::FCMP_OEQ;
}

}  // namespace

Value* first_lanes(Ir& ir, int lanes, int count) {
  Type* bit = ir.integer_type(1);
  if (lanes == 1) return integer(bit, count > 0 ? 1 : 0);
  std::vector<llvm::Constant*> elements;
  for (int i = 0; i < lanes; ++i) {
    elements.push_back(llvm::cast<llvm::Constant>(integer(bit, i < count ? 1 : 0)));
  }
  return llvm::ConstantVector::get(elements);
}

Value* add(Ir& ir, Value* a, Value* b) { return ir.builder().CreateAdd(a, b); }
Value* sub(Ir& ir, Value* a, Value* b) { return ir.builder().CreateSub(a, b); }
Value* mul(Ir& ir, Value* a, Value* b) { return ir.builder().CreateMul(a, b); }
Value* sdiv(Ir& ir, Value* a, Value* b) { return ir.builder().CreateSDiv(a, b); }
Value* srem(Ir& ir, Value* a, Value* b) { return ir.builder().CreateSRem(a, b); }
Value* udiv(Ir& ir, Value* a, Value* b) { return ir.builder().CreateUDiv(a, b); }
Value* urem(Ir& ir, Value* a, Value* b) { return ir.builder().CreateURem(a, b); }
Value* bit_and(Ir& ir, Value* a, Value* b) { return ir.builder().CreateAnd(a, b); }
Value* bit_or(Ir& ir, Value* a, Value* b) { return ir.builder().CreateOr(a, b); }
Value* bit_xor(Ir& ir, Value* a, Value* b) { return ir.builder().CreateXor(a, b); }
Value* bit_not(Ir& ir, Value* a) { return ir.builder().CreateNot(a); }
Value* shl(Ir& ir, Value* a, Value* b) { return ir.builder().CreateShl(a, b); }
Value* lshr(Ir& ir, Value* a, Value* b) { return ir.builder().CreateLShr(a, b); }
Value* ashr(Ir& ir, Value* a, Value* b) { return ir.builder().CreateAShr(a, b); }
Value* fadd(Ir& ir, Value* a, Value* b) { return ir.builder().CreateFAdd(a, b); }
Value* fsub(Ir& ir, Value* a, Value* b) { return ir.builder().CreateFSub(a, b); }
Value* fmul(Ir& ir, Value* a, Value* b) { return ir.builder().CreateFMul(a, b); }
Value* fdiv(Ir& ir, Value* a, Value* b) { return ir.builder().CreateFDiv(a, b); }
Value* fneg(Ir& ir, Value* a) { return ir.builder().CreateFNeg(a); }
namespace {

Value* fma_in_double(Ir& ir, Value* a, Value* b, Value* c) {
  Type* const type = type_of(a);
  Type* const wide = ir.f64(lanes_of(type));
  Value* product = fmul(ir, fp_extend(ir, a, wide), fp_extend(ir, b, wide));
  return fp_truncate(ir, fadd(ir, product, fp_extend(ir, c, wide)), type);
}
Value* fma_in_parts(Ir& ir, Value* a, Value* b, Value* c) {
  const auto halves = [&](Value* x) {  // Veltkamp's split
    Value* shifted = fmul(ir, x, real(type_of(x), 0x1p27 + 1));
    Value* high = fsub(ir, shifted, fsub(ir, shifted, x));
    return std::pair(high, fsub(ir, x, high));
  };
  const auto [a_high, a_low] = halves(a);
  const auto [b_high, b_low] = halves(b);
  Value* product = fmul(ir, a, b);  // Dekker's: product + lost is a * b
  Value* lost = fsub(ir, fmul(ir, a_high, b_high), product);
  lost = fadd(ir, fadd(ir, lost, fmul(ir, a_high, b_low)), fmul(ir, a_low, b_high));
  lost = fadd(ir, lost, fmul(ir, a_low, b_low));
  Value* sum = fadd(ir, product, c);  // Knuth's: sum + rest is product + c
  Value* back = fsub(ir, sum, product);
  Value* rest = fadd(ir, fsub(ir, product, fsub(ir, sum, back)), fsub(ir, c, back));
  Value* correction = fadd(ir, rest, lost);
  // Splitting a value near the largest finite one overflows.
  return select(ir, fcmp(ir, Compare::eq, correction, correction), fadd(ir, sum, correction), sum);
}

}  // namespace

Value* fma(Ir& ir, Value* a, Value* b, Value* c) {
  if (ir.has_fma()) return intrinsic(ir, llvm::Intrinsic::fma, {a, b, c});
  return bits_of(type_of(a)) == 32 ? fma_in_double(ir, a, b, c) : fma_in_parts(ir, a, b, c);
}
Value* fabs(Ir& ir, Value* a) { return intrinsic(ir, llvm::Intrinsic::fabs, {a}); }
Value* sqrt(Ir& ir, Value* a) { return intrinsic(ir, llvm::Intrinsic::sqrt, {a}); }
Value* floor(Ir& ir, Value* a) { return intrinsic(ir, llvm::Intrinsic::floor, {a}); }
Value* ceil(Ir& ir, Value* a) { return intrinsic(ir, llvm::Intrinsic::ceil, {a}); }
Value* trunc(Ir& ir, Value* a) { return intrinsic(ir, llvm::Intrinsic::trunc, {a}); }
Value* round_even(Ir& ir, Value* a) { return intrinsic(ir, llvm::Intrinsic::rint, {a}); }
Value* copysign(Ir& ir, Value* magnitude, Value* sign) {
  return intrinsic(ir, llvm::Intrinsic::copysign, {magnitude, sign});
}
Value* scale_by_power(Ir& ir, Value* a, Value* n, Value* where) {
  const int lanes = lanes_of(a);
  if (!ir.has_avx512() || bits_of(type_of(a)) != 32 || (lanes != 16 && lanes != 8)) return nullptr;
  auto& b = ir.builder();
  llvm::Type* word = b.getIntNTy(static_cast<unsigned>(lanes));
  Value* mask = where != nullptr ? b.CreateBitCast(where, word) : llvm::ConstantInt::get(word, -1);
  if (lanes == 16) {
    return b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_scalef_ps_512, {},
                             {a, n, zero(type_of(a)), mask, b.getInt32(4)});
  }
  return b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_scalef_ps_256, {},
                           {a, n, zero(type_of(a)), mask});
}
Value* look_up(Ir& ir, std::span<const double> table, Value* i) {
  const int lanes = lanes_of(i);
  const bool wide = lanes == 16 && ir.has_avx512();
  if (static_cast<std::size_t>(lanes) != table.size() || (!wide && lanes != 8)) return nullptr;
  std::vector<llvm::Constant*> entries;
  for (const double v : table) entries.push_back(llvm::ConstantFP::get(ir.f32(), v));
  return ir.builder().CreateIntrinsic(
      wide ? llvm::Intrinsic::x86_avx512_permvar_sf_512 : llvm::Intrinsic::x86_avx2_permps, {},
      {llvm::ConstantVector::get(entries), i});
}
Value* pack_bf16(Ir& ir, Value* low, Value* high) {
  constexpr int kLanes = 16;
  auto& b = ir.builder();
  Value* both =
      b.CreateIntrinsic(llvm::Intrinsic::x86_avx512bf16_cvtne2ps2bf16_512, {}, {high, low});
  std::vector<int> order;
  for (int lane = 0; lane < kLanes; ++lane) order.insert(order.end(), {lane, kLanes + lane});
  return bitcast(ir, shuffle(ir, both, both, order), ir.integer_type(32, kLanes));
}
Value* dot_bf16(Ir& ir, Value* c, Value* a, Value* b) {
  constexpr auto kDot = llvm::Intrinsic::x86_avx512bf16_dpbf16ps_512;
#if LLVM_VERSION_MAJOR >= 20
  llvm::Function* const dot = llvm::Intrinsic::getOrInsertDeclaration(&ir.module(), kDot);
#else
  llvm::Function* const dot = llvm::Intrinsic::getDeclaration(&ir.module(), kDot);
#endif
  Type* const pairs = dot->getFunctionType()->getParamType(1);
  return ir.builder().CreateCall(dot, {c, bitcast(ir, a, pairs), bitcast(ir, b, pairs)});
}

namespace {

constexpr int kTileElement = 4;  // bytes

Value* rows_of(Ir& ir, TileShape shape) {
  return ir.builder().getInt16(static_cast<std::uint16_t>(shape.rows));
}
Value* bytes_of(Ir& ir, int columns) {
  return ir.builder().getInt16(static_cast<std::uint16_t>(columns * kTileElement));
}

}  // namespace

Value* zero_tile(Ir& ir, TileShape shape) {
  return ir.builder().CreateIntrinsic(llvm::Intrinsic::x86_tilezero_internal, {},
                                      {rows_of(ir, shape), bytes_of(ir, shape.columns)});
}
Value* load_tile(Ir& ir, TileShape shape, Value* address, Value* row_bytes) {
  return ir.builder().CreateIntrinsic(
      llvm::Intrinsic::x86_tileloadd64_internal, {},
      {rows_of(ir, shape), bytes_of(ir, shape.columns), address, row_bytes});
}
void store_tile(Ir& ir, TileShape shape, Value* tile, Value* address, Value* row_bytes) {
  ir.builder().CreateIntrinsic(
      llvm::Intrinsic::x86_tilestored64_internal, {},
      {rows_of(ir, shape), bytes_of(ir, shape.columns), address, row_bytes, tile});
}
Value* multiply_tiles(Ir& ir, TileShape shape, int terms, Value* c, Value* a, Value* b) {
  return ir.builder().CreateIntrinsic(
      llvm::Intrinsic::x86_tdpbf16ps_internal, {},
      {rows_of(ir, shape), bytes_of(ir, shape.columns), bytes_of(ir, terms), c, a, b});
}
Value* approximate_reciprocal(Ir& ir, Value* a) {
  const int lanes = lanes_of(a);
  if (!ir.has_avx512() || bits_of(type_of(a)) != 32 || (lanes != 16 && lanes != 8)) {
    return nullptr;
  }
  auto& b = ir.builder();
  if (lanes == 16) {
    return b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_rcp14_ps_512, {},
                             {a, zero(type_of(a)), b.getInt16(0xffff)});
  }
  return b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_rcp14_ps_256, {},
                           {a, zero(type_of(a)), b.getInt8(0xff)});
}
Value* fmin_second(Ir& ir, Value* a, Value* b) {
  return select(ir, fcmp(ir, Compare::lt, a, b), a, b);
}
Value* fmax_second(Ir& ir, Value* a, Value* b) {
  return select(ir, fcmp(ir, Compare::gt, a, b), a, b);
}
Value* icmp(Ir& ir, Compare c, Value* a, Value* b) {
  return ir.builder().CreateICmp(integer_predicate(c), a, b);
}
Value* fcmp(Ir& ir, Compare c, Value* a, Value* b) {
  return ir.builder().CreateFCmp(float_predicate(c), a, b);
}
Value* select(Ir& ir, Value* condition, Value* a, Value* b) {
  return ir.builder().CreateSelect(condition, a, b);
}
Value* smin(Ir& ir, Value* a, Value* b) { return intrinsic(ir, llvm::Intrinsic::smin, {a, b}); }
Value* smax(Ir& ir, Value* a, Value* b) { return intrinsic(ir, llvm::Intrinsic::smax, {a, b}); }

Value* sext(Ir& ir, Value* a, Type* to) { return ir.builder().CreateSExt(a, to); }
Value* zext(Ir& ir, Value* a, Type* to) { return ir.builder().CreateZExt(a, to); }
Value* truncate(Ir& ir, Value* a, Type* to) { return ir.builder().CreateTrunc(a, to); }
Value* resize_signed(Ir& ir, Value* a, Type* to) { return ir.builder().CreateSExtOrTrunc(a, to); }
Value* fp_extend(Ir& ir, Value* a, Type* to) { return ir.builder().CreateFPExt(a, to); }
Value* fp_truncate(Ir& ir, Value* a, Type* to) { return ir.builder().CreateFPTrunc(a, to); }
Value* signed_to_fp(Ir& ir, Value* a, Type* to) { return ir.builder().CreateSIToFP(a, to); }
Value* unsigned_to_fp(Ir& ir, Value* a, Type* to) { return ir.builder().CreateUIToFP(a, to); }
Value* fp_to_signed(Ir& ir, Value* a, Type* to) {
  return ir.builder().CreateFreeze(ir.builder().CreateFPToSI(a, to));
}
Value* bitcast(Ir& ir, Value* a, Type* to) { return ir.builder().CreateBitCast(a, to); }

Value* broadcast(Ir& ir, Value* scalar, int lanes) {
  return lanes == 1 ? scalar : ir.builder().CreateVectorSplat(static_cast<unsigned>(lanes), scalar);
}
Value* extract(Ir& ir, Value* vector, int lane) {
  if (lanes_of(vector) == 1) return vector;
  return ir.builder().CreateExtractElement(vector, static_cast<std::uint64_t>(lane));
}
Value* insert(Ir& ir, Value* vector, Value* element, int lane) {
  if (lanes_of(vector) == 1) return element;
  return ir.builder().CreateInsertElement(vector, element, static_cast<std::uint64_t>(lane));
}
Value* shuffle(Ir& ir, Value* a, Value* b, std::span<const int> mask) {
  return ir.builder().CreateShuffleVector(a, b, llvm::ArrayRef<int>(mask.data(), mask.size()));
}
Value* half(Ir& ir, Value* vector, bool high) {
  const int n = lanes_of(vector) / 2;
  std::vector<int> mask;
  for (int i = 0; i < n; ++i) mask.push_back(high ? n + i : i);
  Value* result = shuffle(ir, vector, poison(type_of(vector)), mask);
  return n == 1 ? extract(ir, vector, high ? 1 : 0) : result;
}
Value* concat(Ir& ir, Value* low, Value* high) {
  const int n = lanes_of(low);
  std::vector<int> mask;
  for (int i = 0; i < 2 * n; ++i) mask.push_back(i);
  if (n > 1) return shuffle(ir, low, high, mask);
  return insert(ir, insert(ir, poison(with_lanes(type_of(low), 2)), low, 0), high, 1);
}
Value* any(Ir& ir, Value* mask) {
  if (lanes_of(mask) == 1) return mask;
  return ir.builder().CreateIntrinsic(llvm::Intrinsic::vector_reduce_or, {mask->getType()}, {mask});
}

Value* address(Ir& ir, Type* element, Value* base, Value* offset) {
  return ir.builder().CreateGEP(element, base, offset);
}
Value* load(Ir& ir, Type* t, Value* address, int alignment) {
  return ir.builder().CreateAlignedLoad(t, address, llvm::Align(static_cast<unsigned>(alignment)));
}
void store(Ir& ir, Value* v, Value* address, int alignment) {
  ir.builder().CreateAlignedStore(v, address, llvm::Align(static_cast<unsigned>(alignment)));
}
namespace {

bool has_first_lane_only(const Value* mask) {
  const auto* constant = llvm::dyn_cast<llvm::Constant>(mask);
  if (constant == nullptr || lanes_of(mask->getType()) == 1) return false;
  for (int lane = 0; lane < lanes_of(mask->getType()); ++lane) {
    const llvm::Constant* element = constant->getAggregateElement(static_cast<unsigned>(lane));
    if (element == nullptr || element->isOneValue() != (lane == 0)) return false;
  }
  return true;
}

}  // namespace

Value* masked_load(Ir& ir, Type* t, Value* address, int alignment, Value* mask, Value* otherwise) {
  return ir.builder().CreateMaskedLoad(t, address, llvm::Align(static_cast<unsigned>(alignment)),
                                       mask, otherwise);
}
void masked_store(Ir& ir, Value* v, Value* address, int alignment, Value* mask) {
  // With AVX-512, LLVM 22 stores all four bytes of an element that was narrowed from four if its
  // mask is known to have one lane.
  if (has_first_lane_only(mask)) {
    store(ir, extract(ir, v, 0), address, alignment);
    return;
  }
  ir.builder().CreateMaskedStore(v, address, llvm::Align(static_cast<unsigned>(alignment)), mask);
}
Value* gather(Ir& ir, Type* t, Value* base, Value* offsets, int alignment, Value* mask,
              Value* otherwise) {
  Value* addresses = ir.builder().CreateGEP(element_of(t), base, offsets);
  return ir.builder().CreateMaskedGather(
      t, addresses, llvm::Align(static_cast<unsigned>(alignment)), mask, otherwise);
}
void scatter(Ir& ir, Value* v, Value* base, Value* offsets, int alignment, Value* mask) {
  Value* addresses = ir.builder().CreateGEP(element_of(type_of(v)), base, offsets);
  ir.builder().CreateMaskedScatter(v, addresses, llvm::Align(static_cast<unsigned>(alignment)),
                                   mask);
}
void atomic_add(Ir& ir, Value* address, Value* v, int alignment) {
  const auto op = is_float(type_of(v)) ? llvm::AtomicRMWInst::FAdd : llvm::AtomicRMWInst::Add;
  ir.builder().CreateAtomicRMW(op, address, v, llvm::Align(static_cast<unsigned>(alignment)),
                               llvm::AtomicOrdering::Monotonic);
}
void prefetch(Ir& ir, Value* address) {
  auto& b = ir.builder();
  b.CreateIntrinsic(llvm::Intrinsic::prefetch, {address->getType()},
                    {address, b.getInt32(0), b.getInt32(3), b.getInt32(1)});
}

Value* call_scalar(Ir& ir, std::string_view name, Type* type, std::span<Value* const> arguments) {
  std::vector<Type*> types(arguments.size(), type);
  auto callee = ir.module().getOrInsertFunction(llvm::StringRef(name.data(), name.size()),
                                                llvm::FunctionType::get(type, types, false));
  auto* function = llvm::cast<llvm::Function>(callee.getCallee());
  function->addFnAttr(llvm::Attribute::NoUnwind);
  function->setDoesNotAccessMemory();
  return ir.builder().CreateCall(callee,
                                 llvm::ArrayRef<Value*>(arguments.data(), arguments.size()));
}

}  // namespace inkle::codegen::cpu
