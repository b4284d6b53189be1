// The layer over LLVM's IRBuilder.
#include "codegen/cpu/ir.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Support/raw_ostream.h>

#include "base/error.h"

namespace inkle::codegen::cpu {

struct Ir::Impl {
  explicit Impl(std::string_view name)
      : module(std::make_unique<llvm::Module>(llvm::StringRef(name.data(), name.size()), context)),
        builder(context) {}
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> module;
  llvm::IRBuilder<> builder;
  llvm::Function* function = nullptr;
  bool has_avx512 = false;
  bool has_fma = true;
  std::vector<llvm::Instruction*> anchors;  // end of the preheader of each open loop

  Value* intrinsic(llvm::Intrinsic::ID id, std::initializer_list<Value*> arguments) {
    return builder.CreateIntrinsic(id, {(*arguments.begin())->getType()},
                                   llvm::ArrayRef<Value*>(arguments.begin(), arguments.size()));
  }
  llvm::BasicBlock* block(const char* name) {
    return llvm::BasicBlock::Create(context, name, function);
  }
};

namespace {

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

Ir::Ir(std::string_view module_name) : impl_(std::make_unique<Impl>(module_name)) {}
Ir::~Ir() = default;

llvm::Module& Ir::module() { return *impl_->module; }

Values Ir::begin_function(std::string_view name, std::string_view cpu, std::string_view features,
                          bool has_fma) {
  auto& context = impl_->context;
  Type* p = llvm::PointerType::getUnqual(context);
  Type* i = llvm::Type::getInt64Ty(context);
  auto* type = llvm::FunctionType::get(llvm::Type::getVoidTy(context), {p, p, p, i, i}, false);
  impl_->function =
      llvm::Function::Create(type, llvm::Function::ExternalLinkage,
                             llvm::StringRef(name.data(), name.size()), *impl_->module);
  llvm::Function& f = *impl_->function;
  impl_->has_fma = has_fma;
  impl_->has_avx512 = features.find("+avx512vl") != std::string_view::npos;
  f.addFnAttr(llvm::Attribute::NoUnwind);
  f.addFnAttr("target-cpu", llvm::StringRef(cpu.data(), cpu.size()));
  f.addFnAttr("target-features", llvm::StringRef(features.data(), features.size()));
  f.addFnAttr("prefer-vector-width", "512");
  f.addFnAttr("min-legal-vector-width", "512");
  f.addFnAttr("no-trapping-math", "true");
  impl_->builder.SetInsertPoint(impl_->block("entry"));
  Values arguments;
  for (llvm::Argument& a : f.args()) arguments.push_back(&a);
  return arguments;
}

void Ir::end_function() { impl_->builder.CreateRetVoid(); }

Type* Ir::integer_type(int bits, int lanes) {
  return with_lanes(llvm::IntegerType::get(impl_->context, static_cast<unsigned>(bits)), lanes);
}
Type* Ir::f16(int lanes) { return with_lanes(llvm::Type::getHalfTy(impl_->context), lanes); }
Type* Ir::f32(int lanes) { return with_lanes(llvm::Type::getFloatTy(impl_->context), lanes); }
Type* Ir::f64(int lanes) { return with_lanes(llvm::Type::getDoubleTy(impl_->context), lanes); }
Type* Ir::pointer() { return llvm::PointerType::getUnqual(impl_->context); }
Type* Ir::type_of(Value* v) { return v->getType(); }

int Ir::lanes_of(Type* t) {
  const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(t);
  return vector == nullptr ? 1 : static_cast<int>(vector->getNumElements());
}
Type* Ir::with_lanes(Type* t, int lanes) {
  Type* element = t->getScalarType();
  return lanes == 1 ? element : llvm::FixedVectorType::get(element, static_cast<unsigned>(lanes));
}
int Ir::bits_of(Type* t) { return static_cast<int>(t->getScalarSizeInBits()); }
bool Ir::is_float(Type* t) { return t->getScalarType()->isFloatingPointTy(); }
Type* Ir::as_integer(Type* t) { return integer_type(bits_of(t), lanes_of(t)); }

Value* Ir::integer(Type* t, std::int64_t value) {
  return llvm::ConstantInt::get(
      t, llvm::APInt(t->getScalarSizeInBits(), static_cast<std::uint64_t>(value), true, true));
}
Value* Ir::real(Type* t, double value) { return llvm::ConstantFP::get(t, value); }
Value* Ir::real_bits(Type* t, std::uint64_t bits) {
  Type* element = t->getScalarType();
  const llvm::APInt integer(element->getScalarSizeInBits(), bits, false, true);
  return llvm::ConstantFP::get(t, llvm::APFloat(element->getFltSemantics(), integer));
}
Value* Ir::zero(Type* t) { return llvm::Constant::getNullValue(t); }
Value* Ir::poison(Type* t) { return llvm::PoisonValue::get(t); }
Value* Ir::i64(std::int64_t value) { return integer(integer_type(64), value); }

Value* Ir::iota(Type* vector, std::int64_t step) {
  const int lanes = lanes_of(vector);
  if (lanes == 1) return zero(vector);
  std::vector<llvm::Constant*> elements;
  for (int i = 0; i < lanes; ++i) {
    elements.push_back(llvm::cast<llvm::Constant>(integer(element_of(vector), i * step)));
  }
  return llvm::ConstantVector::get(elements);
}

Value* Ir::first_lanes(int lanes, int count) {
  Type* bit = integer_type(1);
  if (lanes == 1) return integer(bit, count > 0 ? 1 : 0);
  std::vector<llvm::Constant*> elements;
  for (int i = 0; i < lanes; ++i) {
    elements.push_back(llvm::cast<llvm::Constant>(integer(bit, i < count ? 1 : 0)));
  }
  return llvm::ConstantVector::get(elements);
}

bool Ir::constant_integer(Value* v, std::int64_t& out) {
  const auto* constant = llvm::dyn_cast<llvm::ConstantInt>(v);
  if (constant == nullptr) return false;
  out = constant->getSExtValue();
  return true;
}

Value* Ir::add(Value* a, Value* b) { return impl_->builder.CreateAdd(a, b); }
Value* Ir::sub(Value* a, Value* b) { return impl_->builder.CreateSub(a, b); }
Value* Ir::mul(Value* a, Value* b) { return impl_->builder.CreateMul(a, b); }
Value* Ir::sdiv(Value* a, Value* b) { return impl_->builder.CreateSDiv(a, b); }
Value* Ir::srem(Value* a, Value* b) { return impl_->builder.CreateSRem(a, b); }
Value* Ir::udiv(Value* a, Value* b) { return impl_->builder.CreateUDiv(a, b); }
Value* Ir::urem(Value* a, Value* b) { return impl_->builder.CreateURem(a, b); }
Value* Ir::bit_and(Value* a, Value* b) { return impl_->builder.CreateAnd(a, b); }
Value* Ir::bit_or(Value* a, Value* b) { return impl_->builder.CreateOr(a, b); }
Value* Ir::bit_xor(Value* a, Value* b) { return impl_->builder.CreateXor(a, b); }
Value* Ir::bit_not(Value* a) { return impl_->builder.CreateNot(a); }
Value* Ir::shl(Value* a, Value* b) { return impl_->builder.CreateShl(a, b); }
Value* Ir::lshr(Value* a, Value* b) { return impl_->builder.CreateLShr(a, b); }
Value* Ir::ashr(Value* a, Value* b) { return impl_->builder.CreateAShr(a, b); }
Value* Ir::fadd(Value* a, Value* b) { return impl_->builder.CreateFAdd(a, b); }
Value* Ir::fsub(Value* a, Value* b) { return impl_->builder.CreateFSub(a, b); }
Value* Ir::fmul(Value* a, Value* b) { return impl_->builder.CreateFMul(a, b); }
Value* Ir::fdiv(Value* a, Value* b) { return impl_->builder.CreateFDiv(a, b); }
Value* Ir::fneg(Value* a) { return impl_->builder.CreateFNeg(a); }
Value* Ir::fma(Value* a, Value* b, Value* c) {
  if (impl_->has_fma) return impl_->intrinsic(llvm::Intrinsic::fma, {a, b, c});
  return bits_of(type_of(a)) == 32 ? fma_in_double(a, b, c) : fma_in_parts(a, b, c);
}
Value* Ir::fma_in_double(Value* a, Value* b, Value* c) {
  Type* const type = type_of(a);
  Type* const wide = f64(lanes_of(type));
  Value* product = fmul(fp_extend(a, wide), fp_extend(b, wide));
  return fp_truncate(fadd(product, fp_extend(c, wide)), type);
}
Value* Ir::fma_in_parts(Value* a, Value* b, Value* c) {
  const auto halves = [&](Value* x) {  // Veltkamp's split
    Value* shifted = fmul(x, real(type_of(x), 0x1p27 + 1));
    Value* high = fsub(shifted, fsub(shifted, x));
    return std::pair(high, fsub(x, high));
  };
  const auto [a_high, a_low] = halves(a);
  const auto [b_high, b_low] = halves(b);
  Value* product = fmul(a, b);  // Dekker's: product + lost is a * b
  Value* lost = fsub(fmul(a_high, b_high), product);
  lost = fadd(fadd(lost, fmul(a_high, b_low)), fmul(a_low, b_high));
  lost = fadd(lost, fmul(a_low, b_low));
  Value* sum = fadd(product, c);  // Knuth's: sum + rest is product + c
  Value* back = fsub(sum, product);
  Value* rest = fadd(fsub(product, fsub(sum, back)), fsub(c, back));
  Value* correction = fadd(rest, lost);
  // Splitting what is near the largest number overflows.
  return select(fcmp(Compare::eq, correction, correction), fadd(sum, correction), sum);
}
Value* Ir::fabs(Value* a) { return impl_->intrinsic(llvm::Intrinsic::fabs, {a}); }
Value* Ir::sqrt(Value* a) { return impl_->intrinsic(llvm::Intrinsic::sqrt, {a}); }
Value* Ir::floor(Value* a) { return impl_->intrinsic(llvm::Intrinsic::floor, {a}); }
Value* Ir::ceil(Value* a) { return impl_->intrinsic(llvm::Intrinsic::ceil, {a}); }
Value* Ir::trunc(Value* a) { return impl_->intrinsic(llvm::Intrinsic::trunc, {a}); }
Value* Ir::round_even(Value* a) { return impl_->intrinsic(llvm::Intrinsic::rint, {a}); }
Value* Ir::copysign(Value* magnitude, Value* sign) {
  return impl_->intrinsic(llvm::Intrinsic::copysign, {magnitude, sign});
}
Value* Ir::scale_by_power(Value* a, Value* n) {
  const int lanes = lanes_of(a);
  if (!impl_->has_avx512 || bits_of(type_of(a)) != 32 || (lanes != 16 && lanes != 8))
    return nullptr;
  auto& b = impl_->builder;
  if (lanes == 16) {
    return b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_scalef_ps_512, {},
                             {a, n, zero(type_of(a)), b.getInt16(0xffff), b.getInt32(4)});
  }
  return b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_scalef_ps_256, {},
                           {a, n, zero(type_of(a)), b.getInt8(0xff)});
}
Value* Ir::look_up(std::span<const double> table, Value* i) {
  const int lanes = lanes_of(i);
  const bool wide = lanes == 16 && impl_->has_avx512;
  if (static_cast<std::size_t>(lanes) != table.size() || (!wide && lanes != 8)) return nullptr;
  std::vector<llvm::Constant*> entries;
  for (const double v : table) entries.push_back(llvm::ConstantFP::get(f32(), v));
  return impl_->builder.CreateIntrinsic(
      wide ? llvm::Intrinsic::x86_avx512_permvar_sf_512 : llvm::Intrinsic::x86_avx2_permps, {},
      {llvm::ConstantVector::get(entries), i});
}
Value* Ir::pack_bf16(Value* low, Value* high) {
  constexpr int kLanes = 16;
  auto& b = impl_->builder;
  Value* both =
      b.CreateIntrinsic(llvm::Intrinsic::x86_avx512bf16_cvtne2ps2bf16_512, {}, {high, low});
  std::vector<int> order;
  for (int lane = 0; lane < kLanes; ++lane) order.insert(order.end(), {lane, kLanes + lane});
  return bitcast(shuffle(both, both, order), integer_type(32, kLanes));
}
Value* Ir::dot_bf16(Value* c, Value* a, Value* b) {
  constexpr auto kDot = llvm::Intrinsic::x86_avx512bf16_dpbf16ps_512;
#if LLVM_VERSION_MAJOR >= 20
  llvm::Function* const dot = llvm::Intrinsic::getOrInsertDeclaration(impl_->module.get(), kDot);
#else
  llvm::Function* const dot = llvm::Intrinsic::getDeclaration(impl_->module.get(), kDot);
#endif
  Type* const pairs = dot->getFunctionType()->getParamType(1);
  return impl_->builder.CreateCall(dot, {c, bitcast(a, pairs), bitcast(b, pairs)});
}
Value* Ir::approximate_reciprocal(Value* a) {
  const int lanes = lanes_of(a);
  if (!impl_->has_avx512 || bits_of(type_of(a)) != 32 || (lanes != 16 && lanes != 8)) {
    return nullptr;
  }
  auto& b = impl_->builder;
  if (lanes == 16) {
    return b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_rcp14_ps_512, {},
                             {a, zero(type_of(a)), b.getInt16(0xffff)});
  }
  return b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_rcp14_ps_256, {},
                           {a, zero(type_of(a)), b.getInt8(0xff)});
}
Value* Ir::fmin_second(Value* a, Value* b) { return select(fcmp(Compare::lt, a, b), a, b); }
Value* Ir::fmax_second(Value* a, Value* b) { return select(fcmp(Compare::gt, a, b), a, b); }
Value* Ir::icmp(Compare c, Value* a, Value* b) {
  return impl_->builder.CreateICmp(integer_predicate(c), a, b);
}
Value* Ir::fcmp(Compare c, Value* a, Value* b) {
  return impl_->builder.CreateFCmp(float_predicate(c), a, b);
}
Value* Ir::select(Value* condition, Value* a, Value* b) {
  return impl_->builder.CreateSelect(condition, a, b);
}
Value* Ir::smin(Value* a, Value* b) { return impl_->intrinsic(llvm::Intrinsic::smin, {a, b}); }
Value* Ir::smax(Value* a, Value* b) { return impl_->intrinsic(llvm::Intrinsic::smax, {a, b}); }

Value* Ir::sext(Value* a, Type* to) { return impl_->builder.CreateSExt(a, to); }
Value* Ir::zext(Value* a, Type* to) { return impl_->builder.CreateZExt(a, to); }
Value* Ir::truncate(Value* a, Type* to) { return impl_->builder.CreateTrunc(a, to); }
Value* Ir::resize_signed(Value* a, Type* to) { return impl_->builder.CreateSExtOrTrunc(a, to); }
Value* Ir::fp_extend(Value* a, Type* to) { return impl_->builder.CreateFPExt(a, to); }
Value* Ir::fp_truncate(Value* a, Type* to) { return impl_->builder.CreateFPTrunc(a, to); }
Value* Ir::signed_to_fp(Value* a, Type* to) { return impl_->builder.CreateSIToFP(a, to); }
Value* Ir::unsigned_to_fp(Value* a, Type* to) { return impl_->builder.CreateUIToFP(a, to); }
Value* Ir::fp_to_signed(Value* a, Type* to) {
  return impl_->builder.CreateFreeze(impl_->builder.CreateFPToSI(a, to));
}
Value* Ir::bitcast(Value* a, Type* to) { return impl_->builder.CreateBitCast(a, to); }

Value* Ir::broadcast(Value* scalar, int lanes) {
  return lanes == 1 ? scalar
                    : impl_->builder.CreateVectorSplat(static_cast<unsigned>(lanes), scalar);
}
Value* Ir::extract(Value* vector, int lane) {
  if (lanes_of(vector) == 1) return vector;
  return impl_->builder.CreateExtractElement(vector, static_cast<std::uint64_t>(lane));
}
Value* Ir::insert(Value* vector, Value* element, int lane) {
  if (lanes_of(vector) == 1) return element;
  return impl_->builder.CreateInsertElement(vector, element, static_cast<std::uint64_t>(lane));
}
Value* Ir::shuffle(Value* a, Value* b, std::span<const int> mask) {
  return impl_->builder.CreateShuffleVector(a, b, llvm::ArrayRef<int>(mask.data(), mask.size()));
}
Value* Ir::half(Value* vector, bool high) {
  const int n = lanes_of(vector) / 2;
  std::vector<int> mask;
  for (int i = 0; i < n; ++i) mask.push_back(high ? n + i : i);
  Value* result = shuffle(vector, poison(type_of(vector)), mask);
  return n == 1 ? extract(vector, high ? 1 : 0) : result;
}
Value* Ir::concat(Value* low, Value* high) {
  const int n = lanes_of(low);
  std::vector<int> mask;
  for (int i = 0; i < 2 * n; ++i) mask.push_back(i);
  if (n > 1) return shuffle(low, high, mask);
  return insert(insert(poison(with_lanes(type_of(low), 2)), low, 0), high, 1);
}
Value* Ir::any(Value* mask) {
  if (lanes_of(mask) == 1) return mask;
  return impl_->builder.CreateIntrinsic(llvm::Intrinsic::vector_reduce_or, {mask->getType()},
                                        {mask});
}

Value* Ir::address(Type* element, Value* base, Value* offset) {
  return impl_->builder.CreateGEP(element, base, offset);
}
Value* Ir::load(Type* t, Value* address, int alignment) {
  return impl_->builder.CreateAlignedLoad(t, address,
                                          llvm::Align(static_cast<unsigned>(alignment)));
}
void Ir::store(Value* v, Value* address, int alignment) {
  impl_->builder.CreateAlignedStore(v, address, llvm::Align(static_cast<unsigned>(alignment)));
}
namespace {

bool has_first_lane_only(const Value* mask) {
  const auto* constant = llvm::dyn_cast<llvm::Constant>(mask);
  if (constant == nullptr || Ir::lanes_of(mask->getType()) == 1) return false;
  for (int lane = 0; lane < Ir::lanes_of(mask->getType()); ++lane) {
    const llvm::Constant* element = constant->getAggregateElement(static_cast<unsigned>(lane));
    if (element == nullptr || element->isOneValue() != (lane == 0)) return false;
  }
  return true;
}

}  // namespace

Value* Ir::masked_load(Type* t, Value* address, int alignment, Value* mask, Value* otherwise) {
  return impl_->builder.CreateMaskedLoad(t, address, llvm::Align(static_cast<unsigned>(alignment)),
                                         mask, otherwise);
}
void Ir::masked_store(Value* v, Value* address, int alignment, Value* mask) {
  // With AVX-512, LLVM 22 stores all four bytes of a number that was narrowed from four if its mask
  // is known to have one lane.
  if (has_first_lane_only(mask)) {
    store(extract(v, 0), address, alignment);
    return;
  }
  impl_->builder.CreateMaskedStore(v, address, llvm::Align(static_cast<unsigned>(alignment)), mask);
}
Value* Ir::gather(Type* t, Value* base, Value* offsets, int alignment, Value* mask,
                  Value* otherwise) {
  Value* addresses = impl_->builder.CreateGEP(element_of(t), base, offsets);
  return impl_->builder.CreateMaskedGather(
      t, addresses, llvm::Align(static_cast<unsigned>(alignment)), mask, otherwise);
}
void Ir::scatter(Value* v, Value* base, Value* offsets, int alignment, Value* mask) {
  Value* addresses = impl_->builder.CreateGEP(element_of(type_of(v)), base, offsets);
  impl_->builder.CreateMaskedScatter(v, addresses, llvm::Align(static_cast<unsigned>(alignment)),
                                     mask);
}
void Ir::atomic_add(Value* address, Value* v, int alignment) {
  const auto op = is_float(type_of(v)) ? llvm::AtomicRMWInst::FAdd : llvm::AtomicRMWInst::Add;
  impl_->builder.CreateAtomicRMW(op, address, v, llvm::Align(static_cast<unsigned>(alignment)),
                                 llvm::AtomicOrdering::Monotonic);
}
void Ir::prefetch(Value* address) {
  auto& b = impl_->builder;
  b.CreateIntrinsic(llvm::Intrinsic::prefetch, {address->getType()},
                    {address, b.getInt32(0), b.getInt32(3), b.getInt32(1)});
}

Value* Ir::call_scalar(std::string_view name, Type* type, std::span<Value* const> arguments) {
  std::vector<Type*> types(arguments.size(), type);
  auto callee = impl_->module->getOrInsertFunction(llvm::StringRef(name.data(), name.size()),
                                                   llvm::FunctionType::get(type, types, false));
  auto* function = llvm::cast<llvm::Function>(callee.getCallee());
  function->addFnAttr(llvm::Attribute::NoUnwind);
  function->setDoesNotAccessMemory();
  return impl_->builder.CreateCall(callee,
                                   llvm::ArrayRef<Value*>(arguments.data(), arguments.size()));
}

int Ir::depth() const { return static_cast<int>(impl_->anchors.size()); }

Value* Ir::at_depth(int d, const std::function<Value*()>& emit) {
  INKLE_CHECK(d <= depth(), "no open loop at depth {}", d);
  if (d == depth()) return emit();
  llvm::IRBuilderBase::InsertPointGuard guard(impl_->builder);
  // Loops further in are not open at that place.
  std::vector<llvm::Instruction*> inner(impl_->anchors.begin() + d, impl_->anchors.end());
  impl_->builder.SetInsertPoint(inner.front());
  impl_->anchors.resize(static_cast<std::size_t>(d));
  Value* result = emit();
  impl_->anchors.insert(impl_->anchors.end(), inner.begin(), inner.end());
  return result;
}

Values Ir::loop(Value* begin, Value* end, Value* step, Values carried, const LoopFacts& facts,
                const LoopBody& body) {
  auto& b = impl_->builder;
  llvm::MDBuilder metadata(impl_->context);
  const auto weights = [&](std::int64_t yes) {
    const auto count = static_cast<std::uint32_t>(std::clamp<std::int64_t>(yes, 1, 1 << 20));
    return facts.expected == 0 ? nullptr : metadata.createBranchWeights(count, 1);
  };
  llvm::BasicBlock* skip = b.GetInsertBlock();
  llvm::BasicBlock* preheader = impl_->block("pre");
  llvm::BasicBlock* header = impl_->block("loop");
  llvm::BasicBlock* exit = impl_->block("exit");
  if (facts.at_least_once) {
    b.CreateBr(preheader);
  } else {
    b.CreateCondBr(icmp(Compare::lt, begin, end), preheader, exit, weights(1000));
  }
  b.SetInsertPoint(preheader);
  llvm::Instruction* anchor = b.CreateBr(header);
  b.SetInsertPoint(header);
  auto* i = b.CreatePHI(begin->getType(), 2);
  std::vector<llvm::PHINode*> phis;
  Values inside;
  for (Value* v : carried) {
    phis.push_back(b.CreatePHI(v->getType(), 2));
    inside.push_back(phis.back());
  }
  impl_->anchors.push_back(anchor);
  const Values next = body(i, inside);
  impl_->anchors.pop_back();
  INKLE_CHECK(next.size() == carried.size(), "a loop carries {} values, its body gives {}",
              carried.size(), next.size());
  Value* i_next = b.CreateAdd(i, step, "", false, true);
  llvm::BasicBlock* latch = b.GetInsertBlock();
  b.CreateCondBr(icmp(Compare::lt, i_next, end), header, exit, weights(facts.expected - 1));
  i->addIncoming(begin, anchor->getParent());
  i->addIncoming(i_next, latch);
  b.SetInsertPoint(exit);
  Values result;
  for (std::size_t k = 0; k < carried.size(); ++k) {
    phis[k]->addIncoming(carried[k], anchor->getParent());
    phis[k]->addIncoming(next[k], latch);
    auto* out = b.CreatePHI(carried[k]->getType(), 2);
    if (!facts.at_least_once) out->addIncoming(carried[k], skip);
    out->addIncoming(next[k], latch);
    result.push_back(out);
  }
  return result;
}

Values Ir::branch(Value* condition, bool likely, const std::function<Values()>& then,
                  const std::function<Values()>& otherwise) {
  auto& b = impl_->builder;
  llvm::BasicBlock* head = b.GetInsertBlock();
  llvm::BasicBlock* join = nullptr;
  if (b.GetInsertPoint() == head->end()) {
    join = impl_->block("join");
  } else {  // in front of a preheader's end: that end moves to the join
    join = head->splitBasicBlock(b.GetInsertPoint(), "join");
    head->getTerminator()->eraseFromParent();
  }
  b.SetInsertPoint(head);
  llvm::BasicBlock* yes = impl_->block("then");
  llvm::BasicBlock* no = impl_->block("else");
  llvm::MDBuilder metadata(impl_->context);
  b.CreateCondBr(
      condition, yes, no,
      likely ? metadata.createBranchWeights(1000, 1) : metadata.createBranchWeights(1, 1000));
  b.SetInsertPoint(yes);
  const Values a = then();
  llvm::BasicBlock* yes_end = b.GetInsertBlock();
  b.CreateBr(join);
  b.SetInsertPoint(no);
  const Values c = otherwise();
  llvm::BasicBlock* no_end = b.GetInsertBlock();
  b.CreateBr(join);
  INKLE_CHECK(a.size() == c.size(), "the sides of a branch give {} and {} values", a.size(),
              c.size());
  if (join->empty()) {
    b.SetInsertPoint(join);
  } else {
    b.SetInsertPoint(&*join->begin());
  }
  Values result;
  for (std::size_t k = 0; k < a.size(); ++k) {
    auto* phi = b.CreatePHI(a[k]->getType(), 2);
    phi->addIncoming(a[k], yes_end);
    phi->addIncoming(c[k], no_end);
    result.push_back(phi);
  }
  return result;
}

std::string Ir::text() {
  std::string text;
  llvm::raw_string_ostream stream(text);
  impl_->module->print(stream, nullptr);
  return text;
}

std::string Ir::verify() {
  std::string text;
  llvm::raw_string_ostream stream(text);
  return llvm::verifyModule(*impl_->module, &stream) ? text : std::string();
}

}  // namespace inkle::codegen::cpu
