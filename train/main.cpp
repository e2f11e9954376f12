// attnres: the program.  Finds the subcommand; turns every error into one line and a status.
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string>

#include "reference/parallel.h"
#include "train/commands/command.h"

namespace {

struct Command {
  const char* name;
  int (*run)(int, char**);
  const char* summary;
};

constexpr Command kCommands[] = {
    {"train", attnres::train_command, "train a model, or resume a run"},
    {"sample", attnres::sample_command, "continue a prompt"},
    {"eval", attnres::eval_command, "loss, perplexity, bits per byte on a file"},
    {"inspect", attnres::inspect_command, "routing heat map and statistics by depth"},
    {"gradcheck", attnres::gradcheck_command, "every gradient against finite differences"},
    {"dump", attnres::dump_command, "loss, logits, routing and gradients of a batch, to a file"},
    {"init", attnres::init_command, "a fresh model from a config.json"},
    {"tokenize", attnres::tokenize_command, "text and jsonl files to token shards"},
    {"convert", attnres::convert_command, "add gated depth attention to a residual model"},
    {"export", attnres::export_command, "the weights of a run, for other programs"},
};

void print_help() {
  std::printf(
      "attnres: Attention Residuals and their multi-head form, from equation to trained model.\n\n"
      "Usage: attnres COMMAND [OPTION...]      (attnres COMMAND --help for its options)\n\n");
  for (const auto& command : kCommands) std::printf("  %-10s %s\n", command.name, command.summary);
}

int run(int argc, char** argv) {
  if (argc < 2) {
    print_help();
    return 2;
  }
  if (std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0) {
    print_help();
    return 0;
  }
  for (const auto& command : kCommands)
    if (std::strcmp(argv[1], command.name) == 0) return command.run(argc - 1, argv + 1);
  throw attnres::UsageError(std::string("there is no command \"") + argv[1] +
                            "\"; attnres --help lists them");
}

// One line, whatever the message quotes.
int fail(std::string message, int status) {
  for (char& c : message)
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  std::fprintf(stderr, "attnres: %s\n", message.c_str());
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  attnres::set_threads(0);
  try {
    return run(argc, argv);
  } catch (const attnres::UsageError& error) {
    return fail(error.what(), 2);
  } catch (const std::bad_alloc&) {
    return fail(
        "not enough memory for this model and batch; a smaller --batch or --micro-batch takes less "
        "(train --dry-run shows how much)",
        1);
  } catch (const std::exception& error) {
    return fail(error.what(), 1);
  }
}
