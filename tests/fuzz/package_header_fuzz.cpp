// .inkle files and their plan sections: what is accepted can be read to its last byte and checked.
#include "fuzz.h"
#include "package/package.h"
#include "runtime/common/plan_check.h"
#include "runtime/common/size_program.h"

namespace {

void check(const inkle::package::Contents& contents) {
  inkle::runtime::common::check_references(contents.plan);
  const inkle::runtime::common::SizeProgram sizes(contents.plan);
}

}  // namespace

// A file as it is, then its bytes as a plan section: hashes would keep a fuzzer from what lies
// behind them.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace inkle;
  const std::span<const std::byte> bytes = fuzz::bytes_of(data, size);
  fuzz::accept_refusal([&] {
    const auto package = package::Package::from_bytes("fuzz", {bytes.begin(), bytes.end()},
                                                      package::Package::Use::read);
    for (const package::Contents& contents : package->check_all()) check(contents);
  });
  fuzz::accept_refusal([&] { check(package::unpack(bytes)); });
  return 0;
}
