// Every test executable starts here: one thread per matrix product, then doctest.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include "reference/parallel.h"

int main(int argc, char** argv) {
  attnres::set_threads(0);
  return doctest::Context(argc, argv).run();
}
