// `inkle`: the command. Exit codes: 0, 1 for a wrong or unsupported program or file, 2 for a wrong
// command line, 3 for a bug of Inkle's.
#include <cstdio>
#include <exception>
#include <new>

#include "base/error.h"
#include "cli/commands.h"

namespace {

int report(const char* kind, const char* message, int code) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s: %s\n", kind, message);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Inkle compiles tensor programs to machine code and runs them.", "inkle");
  app.require_subcommand(1);
  app.set_help_all_flag("--help-all", "help of all commands");
  app.footer(
      "Example: inkle run model.pt2 --input input_ids=ids.npy --output out\n"
      "Environment: INKLE_LOG=fusion,passes,... or all says what was decided, to standard error;\n"
      "OMP_NUM_THREADS sets the number of threads.");
  inkle::cli::add_run(app);
  inkle::cli::add_bench(app);
  inkle::cli::add_profile(app);
  inkle::cli::add_opt(app);
  inkle::cli::add_lower(app);
  inkle::cli::add_compile(app);
  inkle::cli::add_inspect(app);
  inkle::cli::add_kernels(app);
  try {
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);
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
