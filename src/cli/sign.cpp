// `inkle key`: a pair of keys. `inkle sign`: a signature beside a package.
#include <cstdio>
#include <string>

#include "base/error.h"
#include "cli/commands.h"
#include "package/package.h"
#include "package/signature.h"

namespace inkle::cli {
namespace {

void make_key(const std::string& path) {
  const package::SecretKey key = package::SecretKey::generate();
  key.write(path);
  std::printf("secret key in %s, readable by you alone; public key in %s\nkey %s\n", path.c_str(),
              package::public_key_path(path).c_str(),
              package::to_string(key.public_key().id()).c_str());
}

void sign(const std::string& path, const std::string& key_file) {
  const package::SecretKey key = package::SecretKey::read(key_file);
  const auto package =
      package::Package::open(path, package::Package::Use::read, {}, package::Trust::anyone());
  (void)package->check_all();  // a damaged file is not signed
  package::write_signature(path, package::sign(package::header_of(package->file().data), key));
  std::printf("%s: signed by key %s\n", package::signature_path(path).c_str(),
              package::to_string(key.public_key().id()).c_str());
}

}  // namespace

void add_key(CLI::App& app) {
  auto path = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("key", "Make a key pair for signing packages.");
  command->add_option("file", *path, "a new file for the secret key; the public one: FILE.pub")
      ->required();
  command->callback([path] { make_key(*path); });
}

void add_sign(CLI::App& app) {
  auto path = std::make_shared<std::string>();
  auto key = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("sign", "Sign a package: FILE.sig beside it.");
  command->add_option("file", *path, "package")->required();
  command->add_option("--key", *key, "file of the secret key, of inkle key")->required();
  command->callback([path, key] { sign(*path, *key); });
}

}  // namespace inkle::cli
