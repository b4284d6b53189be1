// `inkle`: the command. Exit codes: 0, 1 for a wrong or unsupported program or file, 2 for a wrong
// command line, 3 for a bug of Inkle's.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "base/error.h"
#include "cli/cache.h"
#include "cli/commands.h"
#include "cli/doctor.h"

namespace {

int report(const char* kind, const char* message, int code) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s: %s\n", kind, message);
  return code;
}

bool has_command(const CLI::App& app, std::string_view name) {
  return !app.get_subcommands([&](const CLI::App* command) { return command->get_name() == name; })
              .empty();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Inkle compiles tensor programs to machine code and runs them.", "inkle");
  app.require_subcommand(1);
  app.set_help_all_flag("--help-all", "help of all commands");
  inkle::cli::add_build(app);
  inkle::cli::add_check(app);
  inkle::cli::add_key(app);
  inkle::cli::add_sign(app);
  inkle::cli::add_cache(app);
  inkle::cli::add_doctor(app);
  inkle::cli::add_run(app);
  inkle::cli::add_bench(app);
  inkle::cli::add_profile(app);
  inkle::cli::add_opt(app);
  inkle::cli::add_lower(app);
  inkle::cli::add_compile(app);
  inkle::cli::add_inspect(app);
  inkle::cli::add_kernels(app);
  inkle::cli::add_corpus(app);
  inkle::cli::add_kernel(app);
  // After the commands, which would repeat it.
  app.footer(
      "Example: inkle run model.pt2 --input input_ids=ids.npy --output out\n"
      "A script with wrong results: python -m inkle bisect script.py finds the pass and the node.\n"
      "Environment:\n"
      "  INKLE_LOG=fusion,passes,...  logs decisions to standard error (all: every channel)\n"
      "  INKLE_ISA=avx2               leaves AVX-512 unused, in packages too\n"
      "  INKLE_PACKAGE_KEY            public key that must have signed packages\n"
      "  OMP_NUM_THREADS              number of threads");
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);
    if (argc > 1 && std::string_view(argv[1]) == "bisect") {
      return report("error", "bisect runs Python: python -m inkle bisect SCRIPT", 2);
    }
    if (argc > 1 && argv[1][0] != '-' && !has_command(app, argv[1])) {
      const std::string message = fmt::format("no command '{}': inkle --help lists them", argv[1]);
      return report("error", message.c_str(), 2);
    }
    return report("error", e.what(), 2);
  } catch (const inkle::UserError& e) {
    return report("error", e.what(), 1);
  } catch (const inkle::Unsupported& e) {
    return report("error: not supported", e.what(), 1);
  } catch (const inkle::InternalError& e) {
    return report("internal error", e.what(), 3);
  } catch (const std::bad_alloc&) {
    return report("error", "out of memory", 1);
  } catch (const std::exception& e) {
    return report("internal error", e.what(), 3);
  }
}
