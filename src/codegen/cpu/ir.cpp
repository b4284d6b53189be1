#include "codegen/cpu/ir.h"

#include <algorithm>

#include <llvm/IR/Constants.h>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/IRBuilder.h>
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

  llvm::BasicBlock* block(const char* name) {
    return llvm::BasicBlock::Create(context, name, function);
  }
};

Ir::Ir(std::string_view module_name) : impl_(std::make_unique<Impl>(module_name)) {}
Ir::~Ir() = default;

llvm::Module& Ir::module() { return *impl_->module; }
llvm::IRBuilderBase& Ir::builder() { return impl_->builder; }
bool Ir::has_fma() const { return impl_->has_fma; }
bool Ir::has_avx512() const { return impl_->has_avx512; }

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
Value* Ir::i64(std::int64_t value) { return integer(integer_type(64), value); }
Type* Ir::pointer() { return llvm::PointerType::getUnqual(impl_->context); }

int Ir::depth() const { return static_cast<int>(impl_->anchors.size()); }

Value* Ir::at_depth(int d, const std::function<Value*()>& emit) {
  INKLE_CHECK(d <= depth(), "no open loop at depth {}", d);
  if (d == depth()) return emit();
  llvm::IRBuilderBase::InsertPointGuard guard(impl_->builder);
  // Loops further in are not open at that point.
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
    b.CreateCondBr(b.CreateICmpSLT(begin, end), preheader, exit, weights(1000));
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
  b.CreateCondBr(b.CreateICmpSLT(i_next, end), header, exit, weights(facts.expected - 1));
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

// --- Types and constants -------------------------------------------------------------------------

Type* type_of(Value* v) { return v->getType(); }
int lanes_of(Type* t) {
  const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(t);
  return vector == nullptr ? 1 : static_cast<int>(vector->getNumElements());
}
Type* with_lanes(Type* t, int lanes) {
  Type* element = t->getScalarType();
  return lanes == 1 ? element : llvm::FixedVectorType::get(element, static_cast<unsigned>(lanes));
}
int bits_of(Type* t) { return static_cast<int>(t->getScalarSizeInBits()); }
bool is_float(Type* t) { return t->getScalarType()->isFloatingPointTy(); }
Type* as_integer(Type* t) {
  return with_lanes(llvm::IntegerType::get(t->getContext(), t->getScalarSizeInBits()), lanes_of(t));
}

Value* integer(Type* t, std::int64_t value) {
  return llvm::ConstantInt::get(
      t, llvm::APInt(t->getScalarSizeInBits(), static_cast<std::uint64_t>(value), true, true));
}
Value* real(Type* t, double value) { return llvm::ConstantFP::get(t, value); }
Value* real_bits(Type* t, std::uint64_t bits) {
  Type* element = t->getScalarType();
  const llvm::APInt integer(element->getScalarSizeInBits(), bits, false, true);
  return llvm::ConstantFP::get(t, llvm::APFloat(element->getFltSemantics(), integer));
}
Value* zero(Type* t) { return llvm::Constant::getNullValue(t); }
Value* poison(Type* t) { return llvm::PoisonValue::get(t); }

Value* iota(Type* vector, std::int64_t step) {
  const int lanes = lanes_of(vector);
  if (lanes == 1) return zero(vector);
  std::vector<llvm::Constant*> elements;
  for (int i = 0; i < lanes; ++i) {
    elements.push_back(llvm::cast<llvm::Constant>(integer(element_of(vector), i * step)));
  }
  return llvm::ConstantVector::get(elements);
}

bool constant_integer(Value* v, std::int64_t& out) {
  const auto* constant = llvm::dyn_cast<llvm::ConstantInt>(v);
  if (constant == nullptr) return false;
  out = constant->getSExtValue();
  return true;
}

}  // namespace inkle::codegen::cpu
