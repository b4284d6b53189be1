// Lines of keys and signatures: what is accepted prints as it was, and no text but the right one is
// a signature. The right one is in the corpus.
#include <cstdlib>
#include <string>

#include "fuzz.h"
#include "package/signature.h"

namespace {

using namespace inkle;

constexpr std::string_view kSecret =
    "inkle-secret-key-1 AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=\n";

std::string without_line_end(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

void must_be_same(const std::string& printed, std::string_view text) {
  if (without_line_end(printed) != without_line_end(std::string(text))) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const package::SecretKey secret = package::SecretKey::parse(kSecret);
  static const package::Signature right = package::sign({}, secret);
  const std::string_view text = fuzz::text_of(data, size);
  fuzz::accept_refusal([&] { must_be_same(to_string(package::parse_public_key(text)), text); });
  fuzz::accept_refusal([&] { (void)package::SecretKey::parse(text); });
  fuzz::accept_refusal([&] { must_be_same(to_string(package::parse_signature(text)), text); });
  fuzz::accept_refusal([&] {
    const auto trust = package::Trust::of_key(to_string(secret.public_key()));
    const package::HeaderBytes header{};
    trust.check("fuzz", header, std::string(text));
    if (package::parse_signature(text) != right) std::abort();
  });
  return 0;
}
