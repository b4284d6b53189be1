#include "base/error.h"

namespace inkle {

void Error::add_note(std::string_view note) {
  notes_.emplace_back(note);
  text_ += "\n  ";
  text_ += note;
}

void check_failed(const char* condition, const char* file, int line, std::string message) {
  std::string_view path(file);
  const std::size_t src = path.rfind("src/");
  if (src != std::string_view::npos) path.remove_prefix(src);
  throw InternalError(fmt::format("{} (check {} failed at {}:{})", message, condition, path, line));
}

}  // namespace inkle
