// The C functions that generated code may call, by the names it calls them.
#include <array>
#include <cmath>
#include <string_view>

#include "base/special_functions.h"
#include "image/image.h"

namespace inkle::image {

namespace {

struct Entry {
  std::string_view name;
  void* address;
};

using F1 = double (*)(double);
using F2 = double (*)(double, double);
using G1 = float (*)(float);
using G2 = float (*)(float, float);

void* one(F1 f) { return reinterpret_cast<void*>(f); }
void* two(F2 f) { return reinterpret_cast<void*>(f); }
void* one_f(G1 f) { return reinterpret_cast<void*>(f); }
void* two_f(G2 f) { return reinterpret_cast<void*>(f); }

}  // namespace

void* import_named(std::string_view name) {
  static const std::array entries = {
      Entry{"acos", one(std::acos)},
      Entry{"acosh", one(std::acosh)},
      Entry{"asin", one(std::asin)},
      Entry{"asinh", one(std::asinh)},
      Entry{"atan", one(std::atan)},
      Entry{"atan2", two(std::atan2)},
      Entry{"atanh", one(std::atanh)},
      Entry{"cos", one(std::cos)},
      Entry{"cosf", one_f(std::cos)},
      Entry{"cosh", one(std::cosh)},
      Entry{"erf", one(std::erf)},
      Entry{"erfc", one(std::erfc)},
      Entry{"exp", one(std::exp)},
      Entry{"exp2", one(std::exp2)},
      Entry{"expm1", one(std::expm1)},
      Entry{"fmod", two(std::fmod)},
      Entry{"fmodf", two_f(std::fmod)},
      Entry{"hypot", two(std::hypot)},
      Entry{"inkle_digamma", one(inkle::digamma)},
      Entry{"inkle_erfinv", one(inkle::erfinv)},
      Entry{"lgamma", one(std::lgamma)},
      Entry{"log", one(std::log)},
      Entry{"log10", one(std::log10)},
      Entry{"log1p", one(std::log1p)},
      Entry{"log2", one(std::log2)},
      Entry{"nextafter", two(std::nextafter)},
      Entry{"nextafterf", two_f(std::nextafter)},
      Entry{"pow", two(std::pow)},
      Entry{"sin", one(std::sin)},
      Entry{"sincos", reinterpret_cast<void*>(::sincos)},  // what LLVM makes of a sin and a cos
      Entry{"sincosf", reinterpret_cast<void*>(::sincosf)},
      Entry{"sinf", one_f(std::sin)},
      Entry{"sinh", one(std::sinh)},
      Entry{"tan", one(std::tan)},
      Entry{"tanf", one_f(std::tan)},
      Entry{"tanh", one(std::tanh)},
  };
  for (const Entry& e : entries) {
    if (e.name == name) return e.address;
  }
  return nullptr;
}

}  // namespace inkle::image
